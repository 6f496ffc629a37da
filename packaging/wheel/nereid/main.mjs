// Started as `node main.mjs /path/of/nereid ARGS`. The path of the console script replaces this file in `argv`, because
// help and hints print the name that the user typed.
process.argv.splice(1, 1)
await import('./npm/dist/cli/main.js')
