/**
 * Lists the contents of a package for vulnerability scanners: a bill of materials in CycloneDX's JSON. Has no time and
 * no random number, so that two builds of a commit are equal.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { ROOT, SetupError } from '../setup.mjs'
import { linkedCrates, packedLibraries } from './licences.mjs'

/** CycloneDX's name for such files. */
export const SBOM = 'bom.cdx.json'

/** An SPDX expression; old crates have a slash for OR. */
export const licences = (expression) => [{ expression: expression.replaceAll(/\s*\/\s*/g, ' OR ') }]

/** Checksums in Cargo.lock: those of the crates' archives. */
function crateChecksums() {
  const text = readFileSync(join(ROOT, 'Cargo.lock'), 'utf8')
  const found = text.matchAll(
    /\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([^"]+)"/g,
  )
  return new Map([...found].map(([, name, version, checksum]) => [`${name} ${version}`, checksum]))
}

/** Lock files of the start's packages, and of the cloud storage clients. */
const LOCKS = ['package-lock.json', 'src/stores/cloud/package-lock.json']

/** The SHA-512 of an npm package's archive, from package-lock.json. @throws {SetupError} if it is missing */
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
      licenses:
        one.license === null
          ? [{ license: { name: `see ${basename(one.license_file)} of the crate` } }]
          : licences(one.license),
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

/** The text of a bill: the package itself, and its third-party code. */
function bill({ name, version, license }, components) {
  const ref = `npm:${name}@${version}`
  const sorted = components.toSorted((a, b) => (a['bom-ref'] < b['bom-ref'] ? -1 : 1))
  const self = {
    type: 'application',
    'bom-ref': ref,
    name,
    version,
    licenses: licences(license),
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
  }
  return document(self, sorted, [{ ref, dependsOn: sorted.map((one) => one['bom-ref']) }])
}

/** The text of a bill of `self`. */
export function document(self, components, dependencies) {
  const json = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: { component: self },
    components,
    dependencies,
  }
  return `${JSON.stringify(json)}\n`
}

/** Bill of the main package: libraries whose code is in dist/. */
export const mainBill = (manifest) => bill(manifest, npmComponents(packedLibraries()))

/** Bill of the client, which has no third-party code. */
export const clientBill = (manifest) => bill(manifest, [])

/** Bill of a platform's package: crates linked into its module, and ONNX Runtime with the digest of its library. */
export function platformBill(manifest, target, library, onnxruntime) {
  const [archive] = npmComponents([
    { name: 'onnxruntime-node', version: onnxruntime.version, license: onnxruntime.license },
  ])
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
