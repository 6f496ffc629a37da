/** The workflows of .github, read and run in part: for the tests of the release. */
import { spawn } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { ROOT } from '../server/harness.js'

export interface Step {
  name?: string
  uses?: string
  run?: string
  with?: Record<string, unknown>
  env?: Record<string, string>
}

export interface Job {
  needs?: string | string[]
  strategy?: { matrix: Record<string, unknown[]> }
  permissions?: Record<string, string>
  environment?: string
  'timeout-minutes'?: number
  steps: Step[]
}

export interface Workflow {
  file: string
  text: string
  permissions?: unknown
  defaults?: { run: { shell: string } }
  jobs: Record<string, Job>
}

const DIRECTORY = join(ROOT, '.github', 'workflows')

export const WORKFLOWS: Workflow[] = readdirSync(DIRECTORY).map((file) => {
  const text = readFileSync(join(DIRECTORY, file), 'utf8')
  return { ...(parse(text) as Omit<Workflow, 'file' | 'text'>), file, text }
})

/** The workflow in a file. @throws {Error} if there is none */
export function workflow(file: string): Workflow {
  const found = WORKFLOWS.find((one) => one.file === file)
  if (found === undefined) throw new Error(`no workflow ${file}`)
  return found
}

/** The jobs that end before a job begins. */
export function before({ jobs }: Workflow, name: string): Set<string> {
  const needs = [jobs[name]?.needs ?? []].flat()
  return new Set(needs.flatMap((one) => [one, ...before({ jobs } as Workflow, one)]))
}

/** The script of a step. @throws {Error} if no step of this name has one */
export function script(of: Workflow, job: string, name: string): string {
  const run = of.jobs[job]?.steps.find((step) => step.name === name)?.run
  if (run === undefined) throw new Error(`${of.file} has no script ${name} in the job ${job}`)
  return run
}

/** Runs a script as the workflow's shell does, without the caller blocking: a test may serve it at the same time. */
export async function runScript(
  text: string,
  cwd: string,
  env: Record<string, string> = {},
): Promise<{ code: number | null; output: string }> {
  const child = spawn('bash', ['--noprofile', '--norc', '-eo', 'pipefail', '-c', text], {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += String(chunk)))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, output }))
  })
}
