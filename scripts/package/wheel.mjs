/**
 * The wheel `nereid-server` for pip: packaging/wheel with the npm packages `nereid` and that of a platform inside, laid
 * out as npm installs them. hatchling builds it: sorted and without times, so that equal directories give equal bytes.
 */
import { cpSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { capture } from '../lib/run.mjs'
import { filesBelow } from '../lib/stamp.mjs'
import { ROOT, SetupError } from '../setup.mjs'
import { nativeBelow } from './check.mjs'
import { toolsOfPypi } from './pypi.mjs'
import { fresh } from './stage.mjs'
import { machineName, packageName } from './targets.mjs'

const SOURCE = join(ROOT, 'packaging', 'wheel')

/**
 * Packs the directories of two npm packages. `built`: the module is not one for release, and the version says so.
 *
 * @returns {Promise<{path: string, bytes: number, unpacked: number}>}
 */
export async function packWheel(target, { main, platform, built = false }, out) {
  const directory = fresh(`wheel-${target.suffix}`)
  cpSync(SOURCE, directory, { recursive: true, filter: (path) => !path.endsWith('__pycache__') })
  for (const name of ['LICENSE', 'NOTICE']) cpSync(join(ROOT, name), join(directory, name))
  const npm = join(directory, 'nereid', 'npm')
  cpSync(main, npm, { recursive: true })
  cpSync(platform, join(npm, 'node_modules', packageName(target)), { recursive: true })
  if (built) {
    const project = join(directory, 'pyproject.toml')
    const { version } = JSON.parse(readFileSync(join(main, 'package.json'), 'utf8'))
    const marked = readFileSync(project, 'utf8').replace('dynamic = ["version"]', `version = "${version}+quick"`)
    writeFileSync(project, marked.replace(/\[tool\.hatch\.version\]\n(?:.+\n)+\n/, ''))
  }
  const unpacked = filesBelow(directory, ['nereid'])
    .concat(filesBelow(platform, ['.']))
    .reduce((sum, { size }) => sum + size, 0)

  const [, backend] =
    /^requires = \["(hatchling==[\d.]+)"\]$/m.exec(readFileSync(join(SOURCE, 'pyproject.toml'), 'utf8')) ?? []
  if (backend === undefined) throw new SetupError('packaging/wheel/pyproject.toml pins no hatchling')
  const { bin } = await toolsOfPypi('wheel', [backend], 'the builder of wheels')
  const { files, glibc } = nativeBelow(platform)
  const foreign = files.filter(({ machine }) => machine !== machineName(target))
  if (foreign.length > 0)
    throw new SetupError(
      `the wheel for ${target.name} has ${foreign.map(({ path, machine }) => `${path} for ${machine}`).join(', ')}`,
    )
  const tag = wheelTag(target, glibc)
  const env = { ...process.env, NEREID_WHEEL_TAG: tag }
  const { code, text } = await capture(
    join(bin, 'python'),
    ['-m', 'hatchling', 'build', '--target', 'wheel', '--directory', out],
    { cwd: directory, env, quiet: true },
  )
  const path = resolve(directory, text.trim().split('\n').at(-1) ?? '')
  if (code !== 0 || !path.endsWith('.whl')) throw new SetupError(`the wheel could not be built: ${text}`)
  return { path, bytes: statSync(path).size, unpacked }
}

/** The platform tag for pip: `needs` is the newest glibc of its files, above what is promised only outside releases. */
export function wheelTag(target, needs) {
  const [promised, needed] = [target.glibc, needs ?? target.glibc].map((version) => Number(version.split('.')[1]))
  return `py3-none-manylinux_2_${Math.max(promised, needed)}_${machineName(target)}`
}
