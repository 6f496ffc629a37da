/**
 * Makes the reference of the TypeScript API from the compiler's declarations: the exports of a module in order, each
 * with its comment and its declaration. Reads text, not types: one tool prints all declarations, in one form.
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const HEAD = `# TypeScript reference

<!-- Made from the package's declarations by scripts/lib/reference.mjs: run the tests of test/docs with \`-u\`. -->

The package's exports, from its declarations. [TypeScript](typescript.md) shows how to use them; options of
\`ServerOptions\` that are not named here are the [flags](flags.md) in camelCase.
`

/** The exports of a module in order: `[name, file that declares it]`. */
function exportsOf(file) {
  const text = readFileSync(file, 'utf8')
  const found = []
  for (const [, names, from, kind] of text.matchAll(
    new RegExp(
      String.raw`^export (?:type )?\{ ([^}]*) \}(?: from '([^']*)')?;|` +
        String.raw`^export (?:declare )?(?:abstract )?(?:class|interface|type|const|function) (\w+)`,
      'gm',
    ),
  )) {
    if (kind !== undefined) found.push([kind, file])
    else
      for (const name of names.replace(/,\s*$/, '').split(','))
        found.push([
          name.trim().replace(/^type /, ''),
          from === undefined ? imported(text, file, name.trim().replace(/^type /, '')) : resolve(file, from),
        ])
  }
  for (const [, from] of text.matchAll(/^export \* from '([^']*)';/gm)) found.push(...exportsOf(resolve(file, from)))
  return found
}

const resolve = (file, from) => join(dirname(file), from.replace(/\.js$/, '.d.ts'))

/** File of a name that a module imports and exports again. */
function imported(text, file, name) {
  for (const [, names, from] of text.matchAll(/^import (?:type )?\{ ([^}]*) \} from '([^']*)';/gm)) {
    if (names.split(',').some((one) => one.trim().replace(/^type /, '') === name)) return resolve(file, from)
  }
  return file
}

/** The comment above a declaration, and the whole declaration; follows modules that re-export the name. */
function declarationOf(name, file) {
  const text = readFileSync(file, 'utf8')
  const start = new RegExp(
    `^export (?:declare )?(?:abstract )?(?:class|interface|type|const|function) ${name}\\b`,
    'm',
  ).exec(text)
  if (start === null) {
    const onward = exportsOf(file).find(([other, from]) => other === name && from !== file)
    if (onward === undefined) throw new Error(`${name} is not declared in ${file}`)
    return declarationOf(name, onward[1])
  }
  const lines = text.slice(start.index).split('\n')
  // The indentation shows where a declaration ends.
  const endOf = (first) =>
    /[;}]$/.test(lines[first]) ? first : lines.findIndex((line, i) => i > first && /^\S/.test(line))
  const isOverload = (line) => line?.startsWith(`export declare function ${name}<`)
  let last = endOf(0)
  while (isOverload(lines[last + 1])) last = endOf(last + 1)
  const comment = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*$/.exec(text.slice(0, start.index))?.[1] ?? ''
  const code = lines.slice(0, last + 1).join('\n')
  // A type that lists the items of a constant is meaningless without them.
  return {
    comment: prose(comment),
    code: code.replaceAll(/\(typeof (\w+)\)\[number\]/g, (all, constant) => itemsOf(text, constant) ?? all),
  }
}

const itemsOf = (text, constant) =>
  new RegExp(`const ${constant}: readonly \\[([^\\]]*)\\]`)
    .exec(text)?.[1]
    .replaceAll(/,\s*/g, ' | ')
    .replaceAll('"', "'")

const prose = (comment) =>
  comment
    .split('\n')
    .map((line) => line.replace(/^\s*\* ?/, '').trimEnd())
    .join('\n')
    .trim()
    .replaceAll(/^```ts$/gm, '<!-- not run: an example in a comment -->\n```ts')

/** Removes what only the compiler needs. */
const shown = (code) =>
  code
    .replaceAll(/^ +(?:#private|private .*|constructor\((?:native|core|server|request|config): .*);\n/gm, '')
    .replaceAll(/^export (?:declare )?/gm, '')
    .replaceAll(/^( +)(?= *\S)/gm, (indent) => ' '.repeat(Math.ceil(indent.length / 2)))
    .replaceAll(/;$/gm, '')

function section(title, file, except = []) {
  const parts = exportsOf(file)
    .filter(([name]) => !except.includes(name))
    .map(([name, from]) => {
      const { comment, code } = declarationOf(name, from)
      return (
        `### ${name}\n\n${comment === '' ? '' : `${comment}\n\n`}<!-- not run: a declaration ` +
        `-->\n\`\`\`ts\n${shown(code)}\n\`\`\`\n`
      )
    })
  return `## ${title}\n\n${parts.join('\n')}`
}

/** The page, made from the compiler's output in `dist`. */
export function reference(dist) {
  const main = join(dist, 'index.d.ts')
  // Shared exports are listed once.
  const shared = exportsOf(main).map(([name]) => name)
  return [
    HEAD,
    section("import from 'nereid'", main),
    section("import from 'nereid/shm'", join(dist, 'shm/index.d.ts'), shared),
    section("import from 'nereid/backend'", join(dist, 'javascript/index.d.ts')),
    section("import from 'nereid/backend/testing'", join(dist, 'javascript/testing.d.ts')),
  ].join('\n')
}
