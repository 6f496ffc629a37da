#!/usr/bin/env node
/**
 * Known vulnerabilities of linked and packed libraries: `node scripts/advisories.mjs`, or `npm test -- advisories`.
 * cargo-deny reads RustSec's database, `npm audit` the registry. A check without network reports that it did not run,
 * and fails nothing.
 *
 * Vulnerabilities in the packages fail the suite; those of build and test tools are only named.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { capture } from './lib/run.mjs'
import { cargoDeny } from './lint.mjs'
import { packedLibraries } from './package/licences.mjs'
import { ROOT } from './setup.mjs'
import { CLOUD } from './stores.mjs'

/** More than a slow network needs; a command that hangs longer counts as unreachable. */
const MS_MAX = 60_000
/** The platform's package contains only its library. */
const ONNXRUNTIME = 'onnxruntime-node'

/**
 * Reads the output of `npm audit --json`.
 *
 * @param packed names of libraries that are in the packages
 * @returns {{ notRun?: string, bad: string[], tools: string[] }}
 */
export function readAudit(text, packed) {
  const at = text.search(/^\{/m)
  let report = null
  try {
    report = JSON.parse(text.slice(at, text.lastIndexOf('}') + 1))
  } catch {
    // The registry answered with something else.
  }
  if (report?.vulnerabilities === undefined) return { notRun: reason(report?.message ?? text), bad: [], tools: [] }
  const found = Object.values(report.vulnerabilities)
  const line = ({ name, severity, via }) => `${name}: ${severity}: ${via.map((one) => one.title ?? one).join('; ')}`
  return {
    bad: found.filter(({ name }) => packed.has(name)).map(line),
    tools: found.filter(({ name }) => !packed.has(name)).map(line),
  }
}

/**
 * Reads the output of `cargo deny --format json check advisories`; without a summary the check did not run.
 *
 * @returns {{ notRun?: string, bad: string[], tools: string[] }}
 */
export function readDeny(text) {
  const records = text.split('\n').flatMap((line) => {
    try {
      return line.startsWith('{') ? [JSON.parse(line)] : []
    } catch {
      return []
    }
  })
  if (!records.some(({ type }) => type === 'summary')) {
    const messages = records.filter(({ type }) => type === 'log').map(({ fields }) => fields.message)
    return { notRun: reason(messages.at(-1) ?? text), bad: [], tools: [] }
  }
  const found = records.filter(({ type }) => type === 'diagnostic').map(({ fields }) => fields)
  const line = ({ code, message, advisory }) => `${advisory?.id ?? code}: ${advisory?.package ?? ''} ${message}`
  return {
    bad: found.filter(({ severity }) => severity === 'error').map(line),
    tools: found.filter(({ severity }) => severity !== 'error').map(line),
  }
}

const reason = (text) => text.trim().split('\n').at(-1)?.slice(0, 200) || 'it said nothing'

async function audit(directory, packed) {
  const { text } = await capture('npm', ['audit', '--json', '--fetch-retries=0', '--loglevel=error'], {
    cwd: join(ROOT, directory),
    quiet: true,
    timeout: MS_MAX,
  })
  return readAudit(text, new Set(packed))
}

const CHECKS = {
  'npm audit': () => audit('.', [ONNXRUNTIME, ...packedLibraries().map(({ name }) => name)]),
  // Anything installed there is packed, or may be.
  async 'npm audit of cloud storage'() {
    const { packages } = JSON.parse(readFileSync(join(ROOT, CLOUD, 'package-lock.json'), 'utf8'))
    return audit(
      CLOUD,
      Object.keys(packages).map((path) => path.replace(/^.*node_modules\//, '')),
    )
  },
  async 'cargo-deny advisories'() {
    const deny = await cargoDeny()
    if (deny === null) return { notRun: 'cargo-deny cannot be built here', bad: [], tools: [] }
    const { text } = await capture(deny, ['--format', 'json', 'check', '--hide-inclusion-graph', 'advisories'], {
      cwd: ROOT,
      quiet: true,
      timeout: MS_MAX,
    })
    return readDeny(text)
  },
}

/** @returns {Promise<{passed: number, failed: number, failures: string[], skipped: string}>} */
export async function advisories() {
  const counts = { passed: 0, failed: 0, failures: [], skipped: '' }
  const skipped = []
  for (const [name, check] of Object.entries(CHECKS)) {
    const { notRun, bad, tools } = await check()
    for (const line of tools) process.stdout.write(`noted   ${name}: ${line}\n`)
    if (notRun !== undefined) {
      skipped.push(`${name}: ${notRun}`)
      process.stdout.write(`not run ${name}: ${notRun}\n`)
    } else if (bad.length === 0) {
      counts.passed += 1
      process.stdout.write(`ok      ${name}\n`)
    } else {
      counts.failed += 1
      counts.failures.push(...bad)
      for (const line of bad) process.stdout.write(`FAILED  ${name}: ${line}\n`)
    }
  }
  return { ...counts, skipped: skipped.join('; ') }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = (await advisories()).failed === 0 ? 0 : 1
