#!/usr/bin/env node
/**
 * What is made of a run: `node bench/report/readme.mjs bench/results/full.json` judges it, writes its page and its
 * Markdown, and between the marks in README.md a part of the table of the suite `peers`. So what the README says is
 * what a run found. Which targets were missed stands on the page of the results.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { withPart } from '../../scripts/lib/part.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { jsonOf } from '../lib/json.mjs'
import { markdown } from './markdown.mjs'
import { page } from './page.mjs'
import { readmeTable, sentencesText } from './peers.mjs'
import { judge } from './targets.mjs'

/** Judges a run and writes it to `<base>.{json,md,html}`. Returns the Markdown. */
export function writeResults(result, base) {
  result.targets = judge(result)
  const text = markdown(result)
  writeFileSync(`${base}.json`, jsonOf(result))
  writeFileSync(`${base}.md`, text)
  writeFileSync(`${base}.html`, page(result))
  return text
}

export function readmePart(result, path) {
  const count = (verdict) => result.targets.filter((t) => t.verdict === verdict).length
  const { conditions: c, repetitions, peers } = result
  // A run may have measured some suites only; the others are those of earlier runs.
  const { date, commit } = result.measured?.find(({ suites }) => suites.includes('peers')) ?? {
    date: result.date,
    commit: c.commit,
  }
  const verdicts =
    `Of ${result.targets.length} targets, ${count('met')} are met, ${count('missed')} are missed, ` +
    `${count('undecided')} are undecided and ${count('not measured')} are not measured. ` +
    `[${path}](${path}) has every figure with its range, what was set for each server, and the conditions.`
  if (!peers) return `Not measured yet: \`npm run bench -- --suite=peers --merge\`. ${verdicts}`
  return [
    ...readmeTable(result),
    '',
    `${sentencesText(result)}Medians of ${repetitions} repetitions, measured on ${date.slice(0, 10)} at commit ` +
      `${commit} on ${c.cpus} × ${c.cpu} (Linux ${c.kernel}, Node ${c.node}), with the load generator on the same ` +
      `machine. ${verdicts}`,
  ].join('\n')
}

function write(from) {
  const file = join(ROOT, 'README.md')
  const result = JSON.parse(readFileSync(from, 'utf8'))
  const base = from.replace(/\.json$/, '')
  writeResults(result, base)
  const part = readmePart(result, relative(ROOT, `${base}.md`))
  writeFileSync(file, withPart(readFileSync(file, 'utf8'), 'bench/report/readme.mjs', part))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const from = process.argv[2]
  if (from === undefined) {
    console.error('usage: node bench/report/readme.mjs bench/results/full.json')
    process.exitCode = 1
  } else {
    write(resolve(from))
  }
}
