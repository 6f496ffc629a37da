/**
 * Models of real frameworks on the CPU (test/heavy/frameworks): scripts make MODELS of each family with the framework
 * itself, a server loads them one by one, and its answers are those of the framework. Which families are there depends
 * on the interpreters that are found; one that is not is told as absent. Twelve layouts of public model repositories
 * follow, with random weights.
 *
 * `--models=N` (50), `--families=A,B`, `--python=PATH` for interpreters with the frameworks, `--only=TEXT` for models
 * with it in their names. Results of at least 50 models are kept in frameworks/results.json, of which README.md's table
 * is made.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { KEPT_FROM, keep, tables } from './frameworks/results.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'frameworks')

const models = () => Number(process.env.NEREID_HEAVY_MODELS ?? KEPT_FROM)
const isKept = () => models() >= KEPT_FROM && !process.env.NEREID_HEAVY_ONLY

const lineOf = (row) =>
  row.error === undefined
    ? `ok     ${row.of} ${row.model}: ${row.requests} requests in ${row.seconds} s`
    : `FAILED ${row.of} ${row.model}: ${row.error}`

async function run(checks, commit) {
  await pythonEnvironment()
  mkdirSync(HERE, { recursive: true })
  const only = process.env.NEREID_HEAVY_ONLY ?? ''
  const families = process.env.NEREID_HEAVY_FAMILIES
  const args = [
    join(ROOT, 'test/heavy/frameworks/ask.py'),
    HERE,
    `--models=${models()}`,
    `--only=${only}`,
    ...(families === undefined ? [] : [`--families=${families}`]),
  ]
  const results = []
  const onLine = (line) => {
    if (!line.startsWith('{')) return
    const row = JSON.parse(line)
    if (row.model !== undefined) return void process.stdout.write(`${lineOf(row)}\n`)
    results.push({ ...row, date: new Date().toISOString().slice(0, 10), commit })
    // At once: a run that is interrupted later has these.
    if (isKept()) keep(results.slice(-1))
    const name = row.family ?? row.layout
    if (row.absent !== undefined) process.stdout.write(`absent ${name}: ${row.absent}\n`)
    else
      checks.add(name, {
        passed: row.passed,
        failed: row.failures.length,
        failures: row.failures.map(({ model, error }) => `${model}: ${error}`),
      })
  }
  const { code, errors } = await capture(PYTHON, args, { cwd: ROOT, quiet: true, onLine })
  if (code !== 0) throw new Error(`ask.py ended with ${code}: ${errors.trim().split('\n').slice(-5).join(' | ')}`)
  process.stdout.write(`\n${tables(results)}\n`)
  const ran = results.filter((row) => row.absent === undefined)
  const told = ran
    .filter((row) => row.family !== undefined)
    .map((row) => `${row.family} ${row.version}: ${row.passed} of ${row.models} models`)
  const layouts = ran.filter((row) => row.layout !== undefined)
  const absent = results.filter((row) => row.absent !== undefined).map((row) => row.family ?? row.layout)
  return [
    ...told,
    ...(layouts.length > 0
      ? [`${layouts.filter((row) => row.failures.length === 0).length} of ${layouts.length} layouts`]
      : []),
    ...(absent.length > 0 ? [`absent: ${absent.join(' ')}`] : []),
  ].join('; ')
}

/** Some families, or fewer models, are no run of the suite. */
const isPart = () => !isKept() || process.env.NEREID_HEAVY_FAMILIES !== undefined

export const frameworks = {
  about:
    'models of PyTorch, OpenVINO, XGBoost, LightGBM and TensorFlow, made and answered by these, through the server',
  missing: async () => [],
  run,
  isPart,
}
