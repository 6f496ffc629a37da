#!/usr/bin/env node
/**
 * Writes the bills of materials of a release, in CycloneDX's JSON, for vulnerability scanners.
 *
 * `node scripts/package/bills.mjs DIR`: one beside each tarball and wheel in DIR, with the digest of that file; made of
 * the bills inside. `… bills.mjs --image=NAME:TAG` reads what inventory.mjs printed, prints the bill of that image.
 */
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { ask } from '../lib/run.mjs'
import { SetupError, orExplain } from '../setup.mjs'
import { SBOM, document, licences } from './sbom.mjs'

export const OPTIONS = { image: { type: 'string' } }

/** A package URL: `+` of a version would be read as a blank. */
const purl = (type, name, version, more = '') =>
  `pkg:${type}/${encodeURIComponent(name)}@${encodeURIComponent(version)}${more}`

/** One bill of `self` that has everything of several, and other components. */
function merged(self, bills, others = []) {
  const direct = [...bills.map(({ metadata }) => metadata.component), ...others]
  const all = new Map([...direct, ...bills.flatMap(({ components }) => components)].map((one) => [one['bom-ref'], one]))
  const sorted = [...all.values()].toSorted((a, b) => (a['bom-ref'] < b['bom-ref'] ? -1 : 1))
  return document(self, sorted, [
    { ref: self['bom-ref'], dependsOn: direct.map((one) => one['bom-ref']).toSorted() },
    ...bills.flatMap(({ dependencies }) => dependencies),
  ])
}

const hashes = (path) => [{ alg: 'SHA-256', content: createHash('sha256').update(readFileSync(path)).digest('hex') }]

/** Bills inside a wheel, and its metadata, by path. */
const WHEEL = `
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = [name for name in wheel.namelist() if name.endswith(('/${SBOM}', '.dist-info/METADATA'))]
    print(json.dumps({name: wheel.read(name).decode() for name in names}))
`

/** The bill of a tarball. @throws {SetupError} if it has none */
function tarballBill(path) {
  const text = ask('tar', ['-xzOf', path, `package/${SBOM}`])
  if (text === null) throw new SetupError(`${path} has no ${SBOM}`)
  const { metadata, components, dependencies } = JSON.parse(text)
  return document({ ...metadata.component, hashes: hashes(path) }, components, dependencies)
}

/** The bill of a wheel: those of the npm packages in it. @throws {SetupError} if there are not two */
function wheelBill(path) {
  const files = Object.entries(JSON.parse(ask('python3', ['-c', WHEEL, path]) ?? '{}'))
  const bills = files.filter(([name]) => name.endsWith(`/${SBOM}`)).map(([, text]) => JSON.parse(text))
  const metadata = files.find(([name]) => name.endsWith('METADATA'))?.[1] ?? ''
  const [name, version, license] = ['Name', 'Version', 'License-Expression'].map(
    (field) => new RegExp(`^${field}: (.*)$`, 'm').exec(metadata)?.[1],
  )
  if (bills.length !== 2 || license === undefined)
    throw new SetupError(`${path} has ${bills.length} files ${SBOM}, and not one of nereid and one of its platform`)
  const self = {
    type: 'application',
    'bom-ref': `pypi:${name}@${version}`,
    name,
    version,
    hashes: hashes(path),
    licenses: licences(license),
    purl: purl('pypi', name, version),
  }
  return merged(self, bills)
}

/** The bill of a container image, from what inventory.mjs found in it. */
export function imageBill(image, { node, system, debian, python, bills }) {
  const [name, version] = image.split(':')
  const distribution = `${system.id}-${system.version}`
  const others = [
    { type: 'operating-system', 'bom-ref': `os:${distribution}`, name: system.id, version: system.version },
    {
      type: 'application',
      'bom-ref': `node@${node}`,
      name: 'node',
      version: node,
      cpe: `cpe:2.3:a:nodejs:node.js:${node}:*:*:*:*:*:*:*`,
      purl: purl('generic', 'node', node),
    },
    ...debian.map((one) => ({
      type: 'library',
      'bom-ref': `deb:${one.name}@${one.version}`,
      name: one.name,
      version: one.version,
      // Debian's advisories name source packages.
      purl: purl(
        `deb/${system.id}`,
        one.name,
        one.version,
        `?arch=${one.architecture}&distro=${distribution}&upstream=${encodeURIComponent(one.source)}`,
      ),
    })),
    ...python.map((one) => ({
      type: 'library',
      'bom-ref': `pypi:${one.name}@${one.version}`,
      name: one.name,
      version: one.version,
      purl: purl('pypi', one.name.toLowerCase(), one.version),
    })),
  ]
  if (version === undefined || bills.length !== 2 || debian.length === 0)
    throw new SetupError(`${image}: ${bills.length} packages of nereid and ${debian.length} of Debian were found`)
  return merged({ type: 'container', 'bom-ref': `image:${image}`, name, version }, bills, others)
}

function main() {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true })
  if (values.image !== undefined) {
    process.stdout.write(imageBill(values.image, JSON.parse(readFileSync(0, 'utf8'))))
    return
  }
  const [directory] = positionals
  if (directory === undefined) throw new SetupError('node scripts/package/bills.mjs DIR | --image=NAME:TAG')
  const packages = readdirSync(directory).filter((name) => /\.(tgz|whl)$/.test(name))
  if (packages.length === 0) throw new SetupError(`${directory} has no package`)
  for (const name of packages) {
    const path = join(directory, name)
    const text = name.endsWith('.whl') ? wheelBill(path) : tarballBill(path)
    writeFileSync(`${path}.cdx.json`, text)
    process.stdout.write(`${basename(path)}.cdx.json: ${JSON.parse(text).components.length} components\n`)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await orExplain(main)
