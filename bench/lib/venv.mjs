/**
 * The peers' Python environments: `.venv-bench/<peer>`, one each, because their pins contradict one another. Made when
 * first needed; what cannot be installed is a reason in the results, not an error of the bench.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ask, capture } from '../../scripts/lib/run.mjs'

/**
 * @param packages what pip installs; none makes a bare environment
 * @param compile whether Python's byte code is written now, so that no measured start does it
 */
export async function peerEnvironment(root, peer, packages, say, { compile = true } = {}) {
  const base = join(root, '.venv-bench')
  mkdirSync(base, { recursive: true })
  writeFileSync(join(base, '.gitignore'), '*\n')
  const directory = join(base, peer)
  const python = join(directory, 'bin', 'python')
  // A file name has at most 255 bytes, however many packages there are.
  const stamp = join(directory, `installed-${createHash('sha256').update(packages.join(' ')).digest('hex')}`)
  if (existsSync(stamp)) return environment(directory, python)
  say(`installing ${packages.join(', ') || 'nothing but Python'} into .venv-bench/${peer} …`)
  if (!existsSync(python)) {
    const made = await capture('python3', ['-m', 'venv', directory], { quiet: true })
    if (made.code !== 0) throw new Error(`python3 -m venv failed: ${lastLine(made.text)}`)
  }
  if (packages.length > 0) await install(python, [...(compile ? [] : ['--no-compile']), ...packages])
  writeFileSync(stamp, '')
  return environment(directory, python)
}

async function install(python, packages) {
  const pip = await capture(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...packages], {
    quiet: true,
  })
  if (pip.code !== 0)
    throw new Error(`\`${python} -m pip install ${packages.join(' ')}\` failed: ${lastLine(pip.text)}`)
}

function environment(directory, python) {
  const site = ask(python, ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'])
  const version = (name) => ask(python, ['-c', `import importlib.metadata as m; print(m.version("${name}"))`])
  return { directory, python, bin: join(directory, 'bin'), site, version }
}

const lastLine = (text) => text.trim().split('\n').at(-1) ?? ''
