/**
 * The table of docs/models.md is made from src/config/backends.ts; COMPAT.md lists the frameworks without a backend,
 * and folders of backends have rows.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { BACKENDS } from '../../src/config/index.js'
import { filesBelow } from './files.js'
import { ROOT, textOf } from './pages.js'

type Row = (typeof BACKENDS)[number]

const DEVICES = {
  auto: 'with one, else without',
  only: 'only with one',
  never: 'not used',
  none: 'if its group asks for one',
  cpu: 'not used; a group of another kind than `KIND_CPU` is refused',
}
const code = (words: readonly string[], unless: string) =>
  words.length === 0 ? unless : words.map((word) => `\`${word}\``).join(', ')

/** One line for all backends with the same note. */
function line(rows: readonly Row[]): string {
  const [first] = rows
  if (first === undefined) return ''
  const { files = [], chosen = {}, reads, written, devices, note, served } = first
  const names =
    written === undefined
      ? code(
          rows.map(({ name }) => name),
          '',
        )
      : `none, \`${written}\``
  const named = [...Object.values(chosen), ...(reads === undefined ? [] : [reads])].map((name) => `\`${name}\``)
  const file = [
    ...files.map(({ name, kind }) => `\`${name}\`${kind === 'directory' ? ', a directory' : ''}`),
    ...named,
  ].join('; ')
  const gpu = served === 'absent' || written !== undefined ? '' : DEVICES[devices ?? 'none']
  return `| ${names} | ${file === '' ? (served === 'core' ? 'none' : '') : file} | ${code(
    files.flatMap(({ platform = [] }) => platform),
    '',
  )} | ${gpu} | ${note} |\n`
}

function table(): string {
  const served = BACKENDS.filter(({ served: by }) => by !== 'absent')
  const absent = BACKENDS.filter(({ served: by }) => by === 'absent')
  const notes = new Set([...served, ...absent].map(({ note }) => note))
  const lines = [...notes].map((note) => line(BACKENDS.filter((row) => row.note === note)))
  return `| \`backend\` | file of a version | \`platform\` | a GPU | notes |\n|---|---|---|---|---|\n${lines.join('')}`
}

test('the table of docs/models.md matches src/config/backends.ts', async () => {
  const page = textOf('docs/models.md')
  const made = page.replace(
    /(<!-- Made from src\/config\/backends\.ts[^\n]* -->\n\n)(?:\|[^\n]*\n)*/,
    (_, marker: string) => marker + table(),
  )
  expect(page).toContain('<!-- Made from src/config/backends.ts')
  await expect(made).toMatchFileSnapshot(join(ROOT, 'docs/models.md'))
})

test('the table of devices in docs/gpu.md names the backends of each policy', () => {
  const lines = textOf('docs/gpu.md')
    .split('\n')
    .filter((one) => /^\| (?:none, or )?`KIND_/.test(one))
  const named = (devices: Row['devices'], inPython = false) =>
    code(
      BACKENDS.filter((row) => row.devices === devices && (row.module !== undefined || !inPython)).map(
        ({ name }) => name,
      ),
      '',
    )
  expect(lines.filter((one) => one.includes(named('auto', true)))).toHaveLength(2)
  expect(lines.filter((one) => one.includes(`others: ${named('cpu')}, ${named('never')} | the CPU |`))).toHaveLength(1)
  expect(lines.filter((one) => one.startsWith(`| \`KIND_GPU\` | ${named('never')} | the CPU`))).toHaveLength(1)
  expect(lines.filter((one) => one.includes(` | ${named('cpu')} | the load fails`))).toHaveLength(1)
})

test('files of trees are those that the core opens for each `model_type`', () => {
  const rows = [...textOf('crates/trees/src/lib.rs').matchAll(/\(Format::\w+, "(\w+)", "[^"]+", "([\w.]+)"\)/g)]
  expect(rows.map(([, type, file]) => [type, file])).toEqual(
    Object.entries(BACKENDS.find(({ name }) => name === 'fil')?.chosen ?? {}),
  )
})

test('platforms and files of frameworks are written in the table of backends only', () => {
  const rows = BACKENDS.filter(({ name }) => !['onnxruntime', 'python', 'javascript'].includes(name))
  const names = [
    ...BACKENDS.flatMap(({ files = [] }) => files.flatMap(({ platform = [] }) => platform)),
    ...rows.flatMap(({ files = [], chosen = {} }) => [...files.map(({ name }) => name), ...Object.values(chosen)]),
  ]
  // The table of commands has names of files in its prose.
  const own = /\/(?:node_modules|generated)\/|\/(?:config\/backends|cli\/commands)\.ts$/
  const copies = filesBelow(join(ROOT, 'src'), /\.ts$/)
    .filter((path) => !own.test(path))
    .flatMap((path) => {
      const code = readFileSync(path, 'utf8').replaceAll(/\/\*.*?\*\/|^\s*\/\/.*$/gms, '')
      return names.filter((name) => code.includes(name)).map((name) => `${path}: ${name}`)
    })
  expect(copies).toEqual([])
})

test('COMPAT.md names each backend that is not in this release, and none that is', () => {
  const row = /^\| Frameworks that are not in this release: ([^|]*) \|/m.exec(textOf('COMPAT.md'))?.[1] ?? ''
  expect(row.split(', ')).toEqual(BACKENDS.flatMap(({ name, served }) => (served === 'absent' ? [`\`${name}\``] : [])))
})

test('a backend of ours in Python is a folder and a row', () => {
  const root = join(ROOT, 'crates/backend-python/backends')
  // Others have programs that commands run, and no code that serves models.
  const folders = readdirSync(root).filter((name) => existsSync(join(root, name, 'model.py')))
  expect(folders.toSorted()).toEqual(
    BACKENDS.flatMap(({ name, served }) => (served === 'python' ? [name] : [])).toSorted(),
  )
})
