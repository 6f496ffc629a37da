/**
 * Prepares the directories of the npm packages: the `files` of package.json for the main one; module, library and
 * licences for a platform's. `npm pack` makes their tarballs, sorted and without times, so that equal directories give
 * equal bytes.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { capture } from '../lib/run.mjs'
import { filesBelow } from '../lib/stamp.mjs'
import { ROOT, SetupError } from '../setup.mjs'
import { cratesText, librariesText } from './licences.mjs'
import { SBOM, clientBill, mainBill, platformBill } from './sbom.mjs'
import { TARGETS, isProgram, moduleName, packageName } from './targets.mjs'

const STAGE = join(ROOT, 'target', 'package', 'stage')
const ONNXRUNTIME = join(ROOT, 'node_modules', 'onnxruntime-node')

const manifestOf = (directory) => JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))

/** Makes an empty directory. */
export function fresh(name) {
  const directory = join(STAGE, name)
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  return directory
}

const write = (directory, name, text) => writeFileSync(join(directory, name), text)
const writeManifest = (directory, manifest) =>
  write(directory, 'package.json', `${JSON.stringify(manifest, null, 2)}\n`)

/** The published `package.json`, without tools and dependencies: npm libraries are bundled or copied. */
export function publishedManifest() {
  const { scripts: _s, dependencies: _l, devDependencies: _d, overrides: _o, napi: _n, ...manifest } = manifestOf(ROOT)
  return manifest
}

/** The package `nereid`: JavaScript, declarations and the files of Python models. The same for every platform. */
export function stageMain() {
  const manifest = publishedManifest()
  const directory = fresh('nereid')
  const declarations = reachableDeclarations()
  // A clone has its own module; here the platform's package brings it.
  const files = manifest.files.filter((path) => path !== 'native')
  for (const { path } of filesBelow(ROOT, files)) {
    // Maps refer to sources that are not in the package.
    if (/\.(map|pyc)$/.test(path) || (path.endsWith('.d.ts') && !declarations.has(path))) continue
    const to = join(directory, path)
    mkdirSync(dirname(to), { recursive: true })
    if (path.endsWith('.js'))
      writeFileSync(to, readFileSync(join(ROOT, path), 'utf8').replace(/\n\/\/# sourceMappingURL=.*\n?$/, '\n'))
    else copyFileSync(join(ROOT, path), to)
    chmodSync(to, 0o644)
  }
  for (const name of ['README.md', 'CHANGELOG.md', 'LICENSE', 'NOTICE'])
    copyFileSync(join(ROOT, name), join(directory, name))
  write(directory, 'THIRD-PARTY-LICENSES.txt', librariesText())
  write(directory, SBOM, mainBill(manifest))
  writeManifest(directory, {
    ...manifest,
    files: [...files, 'CHANGELOG.md', 'NOTICE', 'THIRD-PARTY-LICENSES.txt', SBOM],
    // Exactly this version: the boundary between both halves is not public.
    optionalDependencies: Object.fromEntries(TARGETS.map((target) => [packageName(target), manifest.version])),
    publishConfig: { access: 'public' },
  })
  return directory
}

/** The package `nereid-client`: the same files as `nereid/client`. */
export function stageClient() {
  const source = join(ROOT, 'client')
  const directory = fresh('nereid-client')
  const declarations = reachableDeclarations(source)
  for (const { path } of filesBelow(source, ['dist'])) {
    if (path.endsWith('.d.ts') && !declarations.has(path)) continue
    mkdirSync(dirname(join(directory, path)), { recursive: true })
    copyFileSync(join(source, path), join(directory, path))
  }
  for (const name of ['LICENSE', 'NOTICE']) copyFileSync(join(ROOT, name), join(directory, name))
  copyFileSync(join(source, 'README.md'), join(directory, 'README.md'))
  for (const { path } of filesBelow(directory, ['.'])) chmodSync(join(directory, path), 0o644)
  const { version, repository } = manifestOf(ROOT)
  const manifest = manifestOf(source)
  write(directory, SBOM, clientBill({ ...manifest, version }))
  writeManifest(directory, {
    ...manifest,
    version,
    ...(repository === undefined ? {} : { repository }),
    files: [...manifest.files, 'NOTICE', SBOM],
    publishConfig: { access: 'public' },
  })
  return directory
}

/**
 * Declarations reachable from a package's entry points. @throws {SetupError} if one needs a package that users do not
 * have
 */
function reachableDeclarations(root = ROOT) {
  const found = new Set()
  const outside = []
  const visit = (path) => {
    if (found.has(path)) return
    found.add(path)
    const text = readFileSync(join(root, path), 'utf8')
    for (const [, plain, inline] of text.matchAll(
      /^(?:import|export)\b[^;]*?\bfrom ["']([^"']+)["']|\bimport\(["']([^"']+)["']\)/gm,
    )) {
      const from = plain ?? inline
      if (from.startsWith('.')) visit(join(dirname(path), from.replace(/\.js$/, '.d.ts')))
      else if (!from.startsWith('node:')) outside.push(`${path} needs the types of ${from}`)
    }
  }
  for (const { types } of Object.values(manifestOf(root).exports)) if (types !== undefined) visit(join(types))
  if (outside.length > 0) throw new SetupError(`the declarations lead out of the package: ${outside.join('; ')}`)
  return found
}

/**
 * A platform's package: `module` under its name, the files beside it, libonnxruntime, and the licences of everything
 * linked into them.
 */
export function stagePlatform(target, module, companions = []) {
  const { version, license, engines, repository } = manifestOf(ROOT)
  const directory = fresh(target.suffix)
  const library = join(ONNXRUNTIME, 'bin', 'napi-v6', target.library)
  if (!existsSync(library)) throw new SetupError(`onnxruntime-node has no ${target.library}: run npm ci`)
  const own = [moduleName(target), ...companions.map((path) => basename(path)), basename(library)]
  const files = [...own, 'LICENSE', 'NOTICE', 'THIRD-PARTY-LICENSES.txt', SBOM, 'onnxruntime']
  copyFileSync(module, join(directory, moduleName(target)))
  for (const path of companions) copyFileSync(path, join(directory, basename(path)))
  copyFileSync(library, join(directory, basename(library)))
  for (const name of ['LICENSE', 'NOTICE']) copyFileSync(join(ROOT, name), join(directory, name))
  write(directory, 'THIRD-PARTY-LICENSES.txt', cratesText(target.triple))
  write(
    directory,
    SBOM,
    platformBill(
      { name: packageName(target), version, license: `${license} AND MIT` },
      target,
      library,
      manifestOf(ONNXRUNTIME),
    ),
  )
  cpSync(onnxruntimeLicences(), join(directory, 'onnxruntime'), { recursive: true })
  for (const { path } of filesBelow(directory, ['.']))
    chmodSync(join(directory, path), isProgram(basename(path)) ? 0o755 : 0o644)
  writeManifest(directory, {
    name: packageName(target),
    version,
    description: `The native core of nereid for ${target.name}, with ONNX Runtime`,
    license: `${license} AND MIT`,
    ...(repository === undefined ? {} : { repository }),
    type: 'commonjs',
    main: moduleName(target),
    ...target.manifest,
    engines,
    files,
    publishConfig: { access: 'public' },
  })
  write(
    directory,
    'README.md',
    `The native core of the inference server \`nereid\` for ${target.name}, and ONNX Runtime ` +
      `${onnxruntimeVersion()}.\nInstall \`nereid\`, which brings this along.\n`,
  )
  return directory
}

const onnxruntimeVersion = () => manifestOf(ONNXRUNTIME).version

/**
 * The texts of onnxruntime's wheel on PyPI, since the npm package has none. @throws {SetupError} if the versions differ
 */
function onnxruntimeLicences() {
  const directory = join(ROOT, 'scripts', 'package', 'onnxruntime', onnxruntimeVersion())
  if (existsSync(directory)) return directory
  throw new SetupError(
    `there are no licences of onnxruntime ${onnxruntimeVersion()}: put LICENSE and ThirdPartyNotices.txt of ` +
      `the wheel of that version into ${relative(ROOT, directory)}`,
  )
}

/** Packs a directory into `out`. Returns path, download size and size on disk, in bytes. */
export async function pack(directory, out) {
  mkdirSync(out, { recursive: true })
  const { code, text } = await capture(
    'npm',
    ['pack', '--json', '--ignore-scripts', '--loglevel=error', '--pack-destination', out],
    { cwd: directory, quiet: true },
  )
  if (code !== 0) throw new SetupError(`npm pack failed in ${directory}: ${text}`)
  const [{ filename, unpackedSize }] = JSON.parse(text.slice(text.indexOf('[')))
  const path = join(out, filename)
  return { path, bytes: statSync(path).size, unpacked: unpackedSize }
}
