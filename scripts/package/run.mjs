#!/usr/bin/env node
/**
 * `npm run package -- [--out DIR] [--target=linux-x64|linux-arm64|darwin-arm64 …] [--wheel]
 * [--module=built|release]`: writes the tarballs of the npm packages `nereid`, `nereid-client` and one for each target;
 * without `--target`, for every target that this machine can build, with advice for the others. `--wheel` adds the
 * wheels for pip, one for each Linux target. `--module=built` uses the module that `npm start` built instead of a
 * release build: quick, for this machine. So does `--wheel` without a target or `--module=release`; the version of such
 * a wheel ends in `+quick`.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { basename, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { show } from '../lib/run.mjs'
import { ROOT, SetupError, orExplain, setup } from '../setup.mjs'
import { stores } from '../stores.mjs'
import { flaws, glibcNeeded } from './check.mjs'
import { buildCompanions, buildModule, obstacle, privatePlaces } from './module.mjs'
import { pack, stageClient, stageMain, stagePlatform } from './stage.mjs'
import { TARGETS, companionFiles, machineName, moduleName, ownTarget, packageName, systemName } from './targets.mjs'
import { packWheel } from './wheel.mjs'

export const OPTIONS = {
  out: { type: 'string' },
  target: { type: 'string', multiple: true },
  wheel: { type: 'boolean' },
  module: { type: 'string' },
  help: { type: 'boolean' },
}

const OUT = join(ROOT, 'target', 'package', 'out')

const RELEASE_MINUTES = 'which takes 25 minutes and more for a target on two cores'

const mb = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`
const say = (text) => process.stdout.write(`${text}\n`)

/**
 * Packs `nereid`, the packages of `targets` and `nereid-client` into `out`; `built` uses this machine's own module,
 * `wheel` adds the wheels.
 *
 * @returns {Promise<{path: string, bytes: number, unpacked: number}[]>} the main package first, then the client, then
 * the wheels
 */
export async function writePackages(out, targets, { built = false, wheel = false } = {}) {
  await stores()
  const main = stageMain()
  const packed = [await pack(main, out)]
  const wheels = []
  for (const target of targets) {
    const [module, ...companions] = built ? await strippedBuild(target) : await releaseBuild(target)
    const platform = stagePlatform(target, module, companions)
    packed.push(await pack(platform, out))
    if (wheel && target.glibc !== null) wheels.push(await packWheel(target, { main, platform, built }, out))
  }
  packed.push(await pack(stageClient(), out), ...wheels)
  for (const { path, bytes, unpacked } of packed) say(`${path}: ${mb(bytes)}, unpacked ${mb(unpacked)}`)
  return packed
}

async function releaseBuild(target) {
  const files = [await buildModule(target), ...(await buildCompanions(target))]
  for (const file of files) {
    const found = flaws(readFileSync(file), {
      machine: machineName(target),
      glibc: target.glibc,
      places: privatePlaces(),
    })
    if (found.length > 0)
      throw new SetupError(`${basename(file)} for ${target.name} is not fit for release: ${found.join('; ')}`)
  }
  return files
}

/** Copies of the module and its companions that `setup` built, without symbols. */
async function strippedBuild(target) {
  if (target !== ownTarget())
    throw new SetupError(`--module=built can make the package of this machine only, not of ${target.name}`)
  const directory = join(ROOT, 'target', 'package', 'built')
  mkdirSync(directory, { recursive: true })
  const copies = [moduleName(target), ...companionFiles(systemName(target))].map((name) => join(directory, name))
  for (const copy of copies) {
    const source = join(ROOT, 'native', basename(copy))
    if (!existsSync(source))
      throw new SetupError(
        `${source} does not exist: remove ${packageName(target)} from node_modules, and run npm run setup`,
      )
    copyFileSync(source, copy)
    if ((await show('strip', [process.platform === 'darwin' ? '-x' : '-s', copy])) !== 0)
      throw new SetupError('strip failed')
  }
  const needs = glibcNeeded(readFileSync(copies[0]))
  say(
    `${target.name}: the module that npm start built${needs === null ? '' : `, which needs glibc ${needs}`}; ` +
      'it names directories of this machine and is not for release',
  )
  return copies
}

/** The given targets, or all that can be built. */
function chosen(names) {
  if (names !== undefined) {
    return names.map((name) => {
      const target = TARGETS.find((one) => one.name === name)
      if (target === undefined)
        throw new SetupError(`no target ${name}: there are ${TARGETS.map((one) => one.name).join(', ')}`)
      const why = obstacle(target)
      if (why !== null) throw new SetupError(`${name} cannot be built here: ${why}`)
      return target
    })
  }
  return TARGETS.filter((target) => {
    const why = obstacle(target)
    if (why !== null) say(`left out: ${target.name}: ${why}`)
    return why === null
  })
}

async function main() {
  const { values } = parseArgs({ options: OPTIONS })
  const targets = TARGETS.map((one) => one.name).join('|')
  const usage = `npm run package -- [--out DIR] [--target=${targets} …] [--wheel] [--module=built|release]`
  if (values.help === true) return say(usage)
  const { module = values.wheel === true && values.target === undefined ? 'built' : 'release' } = values
  if (!['built', 'release'].includes(module)) throw new SetupError(`--module is '${module}': built or release`)
  const built = module === 'built'
  if (!built) say(`This is a release build, ${RELEASE_MINUTES}. npm run package -- --wheel packs what npm start built.`)
  await setup(built ? undefined : ['npm packages', 'TypeScript'])
  const chosenTargets = built ? [ownTarget()].filter((one) => one !== undefined) : chosen(values.target)
  const from = Date.now()
  const out = resolve(values.out ?? OUT)
  const packed = await writePackages(out, chosenTargets, { built, wheel: values.wheel })
  say(
    `${packed.length} packages in ${relative(process.cwd(), out) || '.'} after ` +
      `${((Date.now() - from) / 1000).toFixed(0)} s`,
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await orExplain(main)
