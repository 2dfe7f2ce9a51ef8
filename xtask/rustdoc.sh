#!/bin/sh
# rustdoc for `cargo test --doc` in a check: runs the doc tests, then makes the documentation with
# what is compiled already. `cargo doc` would check every package once more (docs/adr/0259).
set -e
rustdoc "$@"
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    case $word in
    --test | --test-run-directory=*) ;;
    --test-run-directory | --test-args)
        shift
        count=$((count - 1))
        ;;
    *) set -- "$@" "$word" ;;
    esac
done
# Names of private items in the docs of public ones are for who reads the code.
exec rustdoc "$@" --document-private-items -D warnings -A rustdoc::private_intra_doc_links \
    --out-dir "$DOC_FOLDER"
