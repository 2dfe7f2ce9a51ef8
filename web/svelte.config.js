// A table that scrolls must be reachable by keyboard, so its frame has a tabindex (WCAG 2.1.1).
export default {
  compilerOptions: {
    warningFilter: (warning) => warning.code !== "a11y_no_noninteractive_tabindex",
  },
};
