#!/usr/bin/env node
/**
 * `npm run stores`: the cloud storage clients, each with its cloud's library in one file: dist/stores/s3.mjs, gs.mjs
 * and as.mjs. Their packages are in src/stores/cloud, installed on the first call: they are many times larger than a
 * start's, and a server reads them only for a repository in a cloud. Up-to-date files are kept.
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { capture } from './lib/run.mjs'
import { Stamps, filesBelow } from './lib/stamp.mjs'
import { ROOT, STAMPS, SetupError, orExplain, setup } from './setup.mjs'

/** Directory with packages of its own. */
export const CLOUD = 'src/stores/cloud'
const SCHEMES = ['s3', 'gs', 'as']
const outputs = SCHEMES.map((scheme) => `dist/stores/${scheme}.mjs`)

async function must(what, command, args, cwd) {
  const { code, text } = await capture(command, args, { cwd, quiet: true })
  if (code !== 0) throw new SetupError(`${what} failed (exit code ${code}):\n${text}`)
}

async function bundle() {
  const { rolldown } = await import('rolldown')
  for (const scheme of SCHEMES) {
    const bundled = await rolldown({
      cwd: ROOT,
      input: `${CLOUD}/${scheme}.ts`,
      platform: 'node',
      external: (id) => id.startsWith('node:'),
      resolve: { extensionAlias: { '.js': ['.ts', '.js'] } },
      // An unresolved dependency would become an import that fails at the user's.
      onLog(level, log, handler) {
        if (log.code === 'UNRESOLVED_IMPORT') throw new Error(log.message)
        if (level !== 'warn') handler(level, log)
      },
    })
    try {
      // The map is for scripts/package/licences.mjs: it names the libraries in the file.
      await bundled.write({
        file: join(ROOT, `dist/stores/${scheme}.mjs`),
        format: 'esm',
        minify: true,
        sourcemap: 'hidden',
        codeSplitting: false,
        comments: { legal: true, annotation: false, jsdoc: false },
      })
    } finally {
      await bundled.close()
    }
  }
}

/** Installs the libraries. @throws {SetupError} if npm cannot fetch them */
export async function storePackages() {
  const stamps = new Stamps(ROOT, STAMPS)
  const inputs = filesBelow(ROOT, [`${CLOUD}/package-lock.json`, '.npmrc'])
  if (stamps.isFresh('packages of stores', inputs, [`${CLOUD}/node_modules/.package-lock.json`])) return
  const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error']
  await must(`npm ${args.join(' ')} in ${CLOUD}`, 'npm', args, join(ROOT, CLOUD))
  stamps.record('packages of stores', inputs)
}

/**
 * Makes missing files. Resolves with their paths. @throws {SetupError} if npm cannot fetch the packages, or the
 * compiler finds errors
 */
export async function stores() {
  await setup(['npm packages'])
  await storePackages()
  const stamps = new Stamps(ROOT, STAMPS)
  const inputs = filesBelow(ROOT, [
    CLOUD,
    'src/stores/client.ts',
    'tsconfig.json',
    'package-lock.json',
    'scripts/stores.mjs',
  ])
  if (!stamps.isFresh('stores', inputs, outputs)) {
    await must('the check of the types of src/stores/cloud', join(ROOT, 'node_modules/.bin/tsc'), ['-p', CLOUD], ROOT)
    await bundle()
    stamps.record('stores', inputs)
  }
  return outputs
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await orExplain(async () => {
    for (const path of await stores()) process.stdout.write(`${path}\n`)
  })
}
