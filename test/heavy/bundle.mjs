/**
 * The bundle of `npm run test:gpu -- --pack`, made, carried into an empty directory and run there with nothing of this
 * clone but the Python that a GPU machine would have: its rows over the stand-in of the driver, and the bench suite
 * `scale`. Module and load generator are those that set-up builds; the provider stays out.
 */
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { PART_BYTES_MAX, pack } from '../gpu/pack/pack.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'bundle')
const ROWS = ['shm-http', 'shm-grpc', 'shm-refused', 'shm-staged']

async function missing() {
  const out =
    process.platform === 'linux' && process.arch === 'x64'
      ? []
      : [`an x64 Linux: this is ${process.platform} ${process.arch}`]
  for (const tool of ['tar', 'xz', 'strip', 'cc'])
    if (ask(tool, ['--version']) === null) out.push(`${tool}: apt-get install tar xz-utils binutils gcc`)
  return out
}

async function run(checks) {
  await pythonEnvironment()
  const [parts, box] = [join(HERE, 'parts'), join(HERE, 'box')]
  rmSync(HERE, { recursive: true, force: true })
  const version = ask(PYTHON, ['-c', 'import sys; print("%d.%d" % sys.version_info[:2])'])
  await checks.step('it is made', () =>
    pack(['--pack', `--out=${parts}`, '--module=built', '--level=1', '--provider=none', `--python=${version}`]),
  )
  const files = readdirSync(parts).filter((name) => name.startsWith('nereid-gpu.part'))
  const sizes = files.map((name) => statSync(join(parts, name)).size)
  await checks.step('no part is too large', () =>
    must(
      files.length > 0 && sizes.every((size) => size <= PART_BYTES_MAX),
      `${files.join(', ')}: ${sizes.join(', ')} bytes`,
    ),
  )
  mkdirSync(box, { recursive: true })
  for (const name of readdirSync(parts)) copyFileSync(join(parts, name), join(box, name))
  const env = { HOME: box, PATH: '/usr/bin:/bin', LANG: 'C.UTF-8' }
  const rows = async (...words) => capture(PYTHON, [join(box, 'run.py'), ...words], { cwd: box, env, quiet: true })
  await checks.step('a part that is damaged is told, and one that is missing', async () => {
    const [first] = files
    const bytes = readFileSync(join(parts, first))
    bytes[bytes.length >> 1] ^= 1
    writeFileSync(join(box, first), bytes)
    const damaged = await rows('--into=damaged')
    must(damaged.code !== 0, `a damaged part was taken: ${damaged.text}`)
    rmSync(join(box, first))
    const none = await rows()
    must(none.code !== 0 && none.text.includes(`${first} of the bundle is not beside`), none.text)
    copyFileSync(join(parts, first), join(box, first))
  })
  const from = Date.now()
  await checks.step('without a GPU every row is not run', async () => {
    const { code, text } = await rows()
    must(code === 0 && /^0 passed, 0 failed, \d+ not run$/m.test(text), text)
  })
  const unpackedMs = Date.now() - from
  await checks.step('rows run over the stand-in of the driver', async () => {
    const { code, text } = await rows('--mock', ...ROWS.map((id) => `--only=${id}`))
    must(code === 0 && text.includes(`${ROWS.length} passed, 0 failed, 0 not run`), text)
    const { mock, conditions } = JSON.parse(readFileSync(join(box, 'results/mock.json'), 'utf8'))
    must(mock && conditions.bundle.python === version && conditions.node !== null, JSON.stringify(conditions))
  })
  await checks.step('the bench suite scale runs', async () => {
    const bundle = join(box, 'nereid-gpu')
    const { code, text } = await capture(
      join(bundle, 'node/bin/node'),
      ['bench/run.mjs', 'scale', '--setup=false', '--quick', `--out=${join(box, 'results')}`],
      { cwd: bundle, env, quiet: true },
    )
    must(code === 0 && text.includes('### Reactors and instances'), text.slice(-2000))
  })
  rmSync(dirname(box), { recursive: true, force: true })
  return (
    `${files.length} parts, ${(sizes.reduce((a, b) => a + b, 0) / 1e6).toFixed(0)} MB at the fastest ` +
    `compression and without the provider; unpacked and looked at in ${unpackedMs} ms`
  )
}

export const bundle = {
  about:
    'the bundle for GPU machines: made, unpacked elsewhere, its rows over the stand-in of the driver, the ' +
    'bench suite scale',
  missing,
  steps: undefined,
  run,
}
