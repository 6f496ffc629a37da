/** Every row of every area, in the order of their files. */
import { readdirSync } from 'node:fs'
import { standard } from './lib/servers.mjs'

const directory = new URL('.', import.meta.url)
/** Files of this directory that are no area. */
const OTHERS = ['run.mjs', 'rows.mjs', 'docs.mjs']

/** @returns rows with their `area` (the file's name) and `server` filled in */
export async function allRows() {
  const out = []
  for (const file of readdirSync(directory).sort()) {
    if (!file.endsWith('.mjs') || OTHERS.includes(file)) continue
    const { rows } = await import(new URL(file, directory))
    for (const row of rows) out.push({ area: file.replace('.mjs', ''), server: standard, ...row })
  }
  const twice = out.find((row, i) => out.findIndex((other) => other.attack === row.attack) !== i)
  if (twice !== undefined) throw new Error(`two rows have the same attack: ${twice.attack}`)
  return out
}
