#!/usr/bin/env node
/**
 * `node scripts/package/version.mjs vVERSION`: exits with 1 unless every versioned part has this version, and
 * CHANGELOG.md a dated section for it.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Sentences about what prevents a release of `version`; `read` returns a file's text. */
export function unready(version, read) {
  const found = []
  const expect = (path, pattern) => {
    const there = pattern.exec(read(path))?.[1]
    if (there !== version) found.push(`${path} has version ${there ?? 'none'}, not ${version}`)
  }
  expect('package.json', /"version": "([^"]+)"/)
  expect('client/package.json', /"version": "([^"]+)"/)
  expect('Cargo.toml', /^version = "([^"]+)"/m)
  expect('shm/python/pyproject.toml', /^version = "([^"]+)"/m)
  const heading = read('CHANGELOG.md')
    .split('\n')
    .find((line) => line.startsWith(`## ${version},`))
  if (heading === undefined || !/, \d{4}-\d\d-\d\d$/.test(heading))
    found.push(`CHANGELOG.md has no heading "## ${version}, YYYY-MM-DD"`)
  return found
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const version = /^v(\d+\.\d+\.\d+\S*)$/.exec(process.argv[2] ?? '')?.[1]
  const found =
    version === undefined
      ? ['node scripts/package/version.mjs vVERSION']
      : unready(version, (path) => readFileSync(join(ROOT, path), 'utf8'))
  for (const sentence of found) process.stderr.write(`${sentence}\n`)
  process.exitCode = found.length === 0 ? 0 : 1
}
