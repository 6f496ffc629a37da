/** Prints targets that this machine lacks, and records them for the table of `npm test`. */
import { appendFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../server/harness.js'

export function absent(target: string, reason: string): void {
  process.stdout.write(`absent: ${target}: ${reason}\n`)
  mkdirSync(join(ROOT, 'target/reports'), { recursive: true })
  appendFileSync(join(ROOT, 'target/reports/client-absent.txt'), `${target}: ${reason}\n`)
}
