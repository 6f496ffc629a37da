#!/usr/bin/env node
/**
 * `node scripts/package/publish.mjs DIR [--dry-run]`: publishes the npm packages in DIR. `nereid` is the last, so that
 * it is never there without those that it needs. A package that the registry has with the same bytes is left out: a run
 * that failed half-way can be repeated. `--dry-run` publishes nothing, and accepts that a package is missing.
 */
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { ask, show } from '../lib/run.mjs'
import { SetupError, orExplain } from '../setup.mjs'

export const OPTIONS = { 'dry-run': { type: 'boolean' } }

const ANSWER_MS_MAX = 30_000

/** The packages in a directory, in the order of their publication, and the names that `nereid` needs beside it. */
function packagesIn(directory) {
  const packages = readdirSync(directory)
    .filter((name) => name.endsWith('.tgz'))
    .map((name) => {
      const path = resolve(directory, name)
      const text = ask('tar', ['-xzOf', path, 'package/package.json'])
      if (text === null) throw new SetupError(`${path} is no package of npm`)
      return { path, manifest: JSON.parse(text) }
    })
  const main = packages.find(({ manifest }) => manifest.name === 'nereid')
  if (main === undefined) throw new SetupError(`${directory} has no package nereid`)
  const needed = Object.keys(main.manifest.optionalDependencies)
  const versions = new Set(packages.map(({ manifest }) => manifest.version))
  if (versions.size > 1) throw new SetupError(`${directory} has several versions: ${[...versions].join(', ')}`)
  const missing = [...needed, 'nereid-client'].filter((name) => !packages.some((one) => one.manifest.name === name))
  return { ordered: [...packages.filter((one) => one !== main), main], missing }
}

/** The digest that the registry has of a version; null if it has no such version. */
async function published(registry, { name, version }) {
  const url = new URL(encodeURIComponent(name), registry)
  const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER_MS_MAX) })
  // Read in any case: an unread body keeps the process alive.
  const text = await response.text()
  if (response.status === 404) return null
  if (!response.ok) throw new SetupError(`${url} answers with ${response.status}`)
  return JSON.parse(text).versions[version]?.dist.integrity ?? null
}

async function main() {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true })
  const [directory] = positionals
  if (directory === undefined) throw new SetupError('node scripts/package/publish.mjs DIR [--dry-run]')
  const isDry = values['dry-run'] === true
  const { ordered, missing } = packagesIn(directory)
  if (missing.length > 0 && !isDry) throw new SetupError(`${directory} has no package ${missing.join(', ')}`)
  const registry = isDry ? null : ask('npm', ['config', 'get', 'registry'])
  for (const name of missing) process.stdout.write(`missing: ${name}\n`)
  for (const { path, manifest } of ordered) {
    const what = `${manifest.name}@${manifest.version}`
    if (!isDry) {
      const there = await published(registry, manifest)
      const here = `sha512-${createHash('sha512').update(readFileSync(path)).digest('base64')}`
      if (there !== null && there !== here)
        throw new SetupError(`the registry has ${what} with other bytes: ${there}, and not ${here}`)
      if (there !== null) {
        process.stdout.write(`${what} is published already\n`)
        continue
      }
    }
    // `latest` is what `npm install` without a version installs.
    const tag = manifest.version.includes('-') ? 'next' : 'latest'
    const args = ['publish', path, '--access', 'public', '--tag', tag, ...(isDry ? ['--dry-run'] : [])]
    if ((await show('npm', args)) !== 0) throw new SetupError(`npm publish of ${what} failed`)
    process.stdout.write(`${isDry ? 'would be published' : 'published'}: ${what} as ${tag}\n`)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await orExplain(main)
