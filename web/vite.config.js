// The built files have fixed names and go where `weir serve` takes them from.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  publicDir: false,
  build: {
    outDir: "../crates/weir-serve/assets",
    emptyOutDir: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    target: "es2022",
    rollupOptions: {
      output: { entryFileNames: "assets/index.js", assetFileNames: "assets/index[extname]" },
    },
  },
});
