/**
 * `uws()` of `nereid/embed` inside the real uWebSockets.js, which is not on npm: `npm run test:heavy -- uws --uws
 * PATH`, PATH being its directory or its `uws.js`. The same tests and recorded answers run over a stand-in in `npm
 * test`.
 */
import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { vitestCounts } from '../../scripts/lib/counts.mjs'
import { show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { UWS_PATH } from '../embed/uws_module.mjs'

/** Why it is not run, null when it can be. */
function notRun() {
  if (UWS_PATH === undefined)
    return (
      'uWebSockets.js is not on npm: give the path of its module, --uws PATH (a release of ' +
      'github.com/uNetworking/uWebSockets.js)'
    )
  if (!existsSync(UWS_PATH) || !statSync(UWS_PATH).isFile()) return `there is no ${UWS_PATH}`
  return null
}

async function run(checks) {
  const reports = join(ROOT, 'target', 'reports')
  const file = join(reports, 'uws.json')
  mkdirSync(reports, { recursive: true })
  rmSync(file, { force: true })
  const code = await show(
    join(ROOT, 'node_modules/.bin/vitest'),
    ['run', 'test/embed/uws.test.ts', '--reporter=default', '--reporter=json', `--outputFile.json=${file}`],
    { cwd: ROOT },
  )
  checks.add('requests beside the port', vitestCounts(code, file))
  const { embedded } = await import('../embed/run.mjs')
  const recorded = await embedded(['uws'], { all: true })
  checks.add('recorded answers', recorded)
  const manifest = join(dirname(UWS_PATH), 'package.json')
  const version = existsSync(manifest) ? JSON.parse(readFileSync(manifest, 'utf8')).version : 'of unknown version'
  return (
    `uWebSockets.js ${version}, Node ${process.version}; ${recorded.passed} recorded answers, ` +
    `${recorded.known} known differences`
  )
}

export const uws = {
  about: 'the API inside the real uWebSockets.js, with --uws PATH', missing: () => [], notRun, steps: undefined, run,
}
