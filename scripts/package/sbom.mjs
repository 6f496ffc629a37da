/**
 * What is in a package, for programs that look for known vulnerabilities: a bill of materials in CycloneDX's JSON. It has neither a time nor a number at
 * random, so that two builds of a commit are equal.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { ROOT, SetupError } from '../setup.mjs'
import { linkedCrates, packedLibraries } from './licences.mjs'

/** As CycloneDX calls such files. */
export const SBOM = 'bom.cdx.json'

/** An expression of SPDX; crates of old times have a slash for OR. */
const licences = (expression) => [{ expression: expression.replaceAll(/\s*\/\s*/g, ' OR ') }]

/** Checksums as Cargo.lock has them: those of the archives that crates came in. */
function crateChecksums() {
  const text = readFileSync(join(ROOT, 'Cargo.lock'), 'utf8')
  const found = text.matchAll(/\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([^"]+)"/g)
  return new Map([...found].map(([, name, version, checksum]) => [`${name} ${version}`, checksum]))
}

/** Of what the start needs, and of the clients of cloud storage. */
const LOCKS = ['package-lock.json', 'src/stores/cloud/package-lock.json']

/** The SHA-512 of the archive that a package of npm came in, from package-lock.json. @throws {SetupError} when it is not there */
function npmChecksum(name, version) {
  const packages = LOCKS.flatMap((path) => Object.entries(JSON.parse(readFileSync(join(ROOT, path), 'utf8')).packages))
  const found = packages.find(([path, one]) => path.endsWith(`node_modules/${name}`) && one.version === version)
  const [, sum] = /^sha512-(.+)$/.exec(found?.[1].integrity ?? '') ?? []
  if (sum === undefined) throw new SetupError(`package-lock.json has no SHA-512 of ${name} ${version}`)
  return Buffer.from(sum, 'base64').toString('hex')
}

function crateComponents(triple) {
  const sums = crateChecksums()
  const crates = linkedCrates(triple)
  const ref = ({ name, version }) => `cargo:${name}@${version}`
  const components = crates.map((one) => {
    const sum = sums.get(`${one.name} ${one.version}`)
    if (sum === undefined) throw new SetupError(`Cargo.lock has no checksum of ${one.name} ${one.version}`)
    return {
      type: 'library',
      'bom-ref': ref(one),
      name: one.name,
      version: one.version,
      hashes: [{ alg: 'SHA-256', content: sum }],
      licenses: one.license === null ? [{ license: { name: `see ${basename(one.license_file)} of the crate` } }] : licences(one.license),
      purl: `pkg:cargo/${one.name}@${one.version}`,
    }
  })
  return components
}

function npmComponents(libraries) {
  return libraries.map(({ name, version, license }) => ({
    type: 'library',
    'bom-ref': `npm:${name}@${version}`,
    name,
    version,
    hashes: [{ alg: 'SHA-512', content: npmChecksum(name, version) }],
    licenses: licences(license),
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
  }))
}

/** The text of a bill: of the package itself, and of what others wrote in it. */
function bill({ name, version, license }, components) {
  const ref = `npm:${name}@${version}`
  const sorted = components.toSorted((a, b) => (a['bom-ref'] < b['bom-ref'] ? -1 : 1))
  const self = { type: 'application', 'bom-ref': ref, name, version, licenses: licences(license), purl: `pkg:npm/${name.replace('@', '%40')}@${version}` }
  const json = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: { component: self },
    components: sorted,
    dependencies: [{ ref, dependsOn: sorted.map((one) => one['bom-ref']) }],
  }
  return `${JSON.stringify(json)}\n`
}

/** Of the main package: libraries whose code is in dist/. */
export const mainBill = (manifest) => bill(manifest, npmComponents(packedLibraries()))

/** Of the client, which has nothing of others in it. */
export const clientBill = (manifest) => bill(manifest, [])

/** Of the package of a platform: crates that are linked into its module, and ONNX Runtime, with the digest of its library as it is packed. */
export function platformBill(manifest, target, library, onnxruntime) {
  const [archive] = npmComponents([{ name: 'onnxruntime-node', version: onnxruntime.version, license: onnxruntime.license }])
  const file = {
    type: 'file',
    'bom-ref': `file:${basename(library)}`,
    name: basename(library),
    version: onnxruntime.version,
    hashes: [{ alg: 'SHA-256', content: createHash('sha256').update(readFileSync(library)).digest('hex') }],
    licenses: licences(onnxruntime.license),
  }
  return bill(manifest, [...crateComponents(target.triple), archive, file])
}
