// Started as `node main.mjs /path/of/nereid ARGS`: the console script stands for this file, since help and hints print the name that the user typed.
process.argv.splice(1, 1)
await import('./npm/dist/cli/main.js')
