#!/usr/bin/env node
/**
 * `npm run docs [-- --out DIR]`: the pages of docs/ as static files, in target/site or DIR. The generator's own
 * packages, in docs/site, are installed on the first call.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { locked } from './lib/lock.mjs'
import { capture } from './lib/run.mjs'
import { Stamps, filesBelow } from './lib/stamp.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const SITE = join(ROOT, 'docs', 'site')

async function must(command, args) {
  const { code, text } = await capture(command, args, { cwd: SITE, quiet: true })
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code}:\n${text}`)
}

/** Installs the packages of the generator, if they are missing or outdated. */
async function installGenerator() {
  const stamps = new Stamps(ROOT, 'docs/site/node_modules/.nereid-docs.json')
  const inputs = filesBelow(ROOT, ['docs/site/package-lock.json'])
  if (stamps.isFresh('packages', inputs, ['docs/site/node_modules/.package-lock.json'])) return
  await must('npm', ['ci', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error', '--ignore-scripts'])
  stamps.record('packages', inputs)
}

/** Builds the pages. Replaces an earlier build in `out`, which must be empty or such a build. */
export async function buildDocs(out) {
  await locked(join(ROOT, 'target/docs.lock'), 'the packages of the pages', installGenerator)
  if (existsSync(join(out, 'search-index.js'))) rmSync(out, { recursive: true })
  else if (existsSync(out) && readdirSync(out).length > 0)
    throw new Error(`${out} holds something else: name an empty directory`)
  const eleventy = join(SITE, 'node_modules', '@11ty', 'eleventy', 'cmd.cjs')
  await must(process.execPath, [eleventy, '--config=eleventy.config.mjs', `--output=${relative(SITE, out)}`, '--quiet'])
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2)
  const named =
    args.find((a) => a.startsWith('--out='))?.slice('--out='.length) ?? (args[0] === '--out' ? args[1] : undefined)
  if (named === undefined && args.length > 0) throw new Error('npm run docs [-- --out DIR]')
  const out = resolve(named ?? join(ROOT, 'target', 'site'))
  await buildDocs(out)
  process.stdout.write(`${join(out, 'index.html')}\n`)
}
