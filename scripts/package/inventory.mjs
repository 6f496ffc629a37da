/**
 * Lists what is in a container image, as JSON on the standard output: the input of bills.mjs. The image's own Node runs
 * it: `docker run --rm --interactive IMAGE node --input-type=module - < scripts/package/inventory.mjs`. It therefore
 * imports nothing of this repository. `node scripts/package/inventory.mjs ROOT` lists a directory instead.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

const root = process.argv[2] ?? '/'
const list = (directory) => (existsSync(join(root, directory)) ? readdirSync(join(root, directory)).toSorted() : [])
const read = (...parts) => readFileSync(join(root, ...parts), 'utf8')

/** The fields of a paragraph as Debian and Python write them, by lower-case name; of a repeated one the first. */
const fields = (text) =>
  Object.fromEntries(
    [...text.matchAll(/^([\w-]+): *(.*)$/gm)].map(([, name, value]) => [name.toLowerCase(), value]).toReversed(),
  )

const DPKG = 'var/lib/dpkg'
const debian = [
  ...(existsSync(join(root, DPKG, 'status')) ? read(DPKG, 'status').split(/\n\n+/) : []),
  ...list(join(DPKG, 'status.d')).map((name) => read(DPKG, 'status.d', name)),
]
  .map(fields)
  .filter(({ status }) => status?.endsWith(' installed'))
  .map(({ package: name, version, architecture, source }) => ({
    name,
    version,
    architecture,
    // A version in brackets follows where the source has another one.
    source: source?.replace(/ .*/, '') ?? name,
  }))

const PYTHON = 'opt/python/lib'
const python = list(PYTHON)
  .map((version) => join(PYTHON, version, 'site-packages'))
  .flatMap((packages) => list(packages).map((name) => join(packages, name, 'METADATA')))
  .filter((path) => existsSync(join(root, path)))
  .map((path) => fields(read(path).split('\n\n')[0]))
  .map(({ name, version }) => ({ name, version }))

const MODULES = 'opt/nereid/node_modules'
const bills = [`${MODULES}/nereid`, ...list(`${MODULES}/@nereid`).map((name) => `${MODULES}/@nereid/${name}`)].map(
  (directory) => JSON.parse(read(directory, 'bom.cdx.json')),
)

const release = read('etc', 'os-release')
const [id, version] = ['ID', 'VERSION_ID'].map(
  (name) => new RegExp(`^${name}="?([^"\n]*)`, 'm').exec(release)?.[1] ?? '',
)

process.stdout.write(
  `${JSON.stringify({ node: process.versions.node, system: { id, version }, debian, python, bills })}\n`,
)
