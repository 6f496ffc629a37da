/**
 * Debian packages of another release or architecture, unpacked into a directory: for what this machine's own release
 * has too old, and for the libraries of a machine that is emulated. apt keeps a state of its own below the directory;
 * the system's is neither read nor changed.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ask, capture } from '../../../scripts/lib/run.mjs'

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
export const MIRROR = process.env.NEREID_DEBIAN_MIRROR ?? 'http://deb.debian.org/debian'

/** Why packages cannot be fetched here, null when they can. */
export function aptMissing() {
  if (ask('apt-get', ['--version']) === null) return 'apt-get is not here: this suite wants Debian or Ubuntu'
  return existsSync(KEYRING) ? null : `${KEYRING} is not here: apt-get install debian-archive-keyring`
}

/**
 * Fetches packages and unpacks them into `into`, which is made. A directory that is there is taken as it is.
 *
 * @param dependencies also what they depend on, as on a machine without any package
 * @throws {Error} with what apt said
 */
export async function unpacked(into, { release, architecture, packages, dependencies = false }) {
  if (existsSync(into)) return into
  const state = `${into}.apt`
  rmSync(state, { recursive: true, force: true })
  for (const part of ['lists/partial', 'cache/archives/partial', 'etc/preferences.d'])
    mkdirSync(join(state, part), { recursive: true })
  writeFileSync(
    join(state, 'sources.list'),
    `deb [arch=${architecture} signed-by=${KEYRING}] ${MIRROR} ${release} main\n`,
  )
  writeFileSync(join(state, 'status'), '')
  const options = {
    'Dir::State::lists': join(state, 'lists'),
    'Dir::State::status': join(state, 'status'),
    'Dir::Cache': join(state, 'cache'),
    'Dir::Etc::sourcelist': join(state, 'sources.list'),
    'Dir::Etc::sourceparts': '-',
    'Dir::Etc::preferencesparts': join(state, 'etc/preferences.d'),
    'APT::Architecture': architecture,
    'APT::Architectures': architecture,
    'APT::Sandbox::User': 'root',
    'Acquire::Languages': 'none',
  }
  const flags = Object.entries(options).flatMap(([key, value]) => ['-o', `${key}=${value}`])
  const archives = join(state, 'cache', 'archives')
  const apt = async (...args) => {
    const { code, text } = await capture('apt-get', ['-qq', ...flags, ...args], { cwd: archives, quiet: true })
    if (code !== 0)
      throw new Error(
        `apt-get ${args.join(' ')} of ${release}/${architecture}: ${text.trim().split('\n').slice(-4).join(' | ')}`,
      )
  }
  await apt('update')
  if (dependencies) await apt('install', '-y', '--download-only', '--no-install-recommends', ...packages)
  else await apt('download', ...packages)
  const partial = `${into}.partial`
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  for (const file of readdirSync(archives).filter((name) => name.endsWith('.deb'))) {
    const { code, text } = await capture('dpkg-deb', ['-x', join(archives, file), partial], { quiet: true })
    if (code !== 0) throw new Error(`dpkg-deb -x ${file}: ${text.trim()}`)
  }
  // Renamed when it is whole: a run that was interrupted must not leave half a system behind.
  renameSync(partial, into)
  rmSync(state, { recursive: true, force: true })
  return into
}
