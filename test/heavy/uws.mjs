/** `uws()` of `nereid/embed` inside uWebSockets.js: the tests of its adapter, and the recorded answers. */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { vitestCounts } from '../../scripts/lib/counts.mjs'
import { show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { embedded } from '../embed/run.mjs'
import { UWS, uwsModule } from '../embed/uws_module.mjs'

/** Why it cannot be had: no network, another Node, or an older C library. */
const missing = () =>
  uwsModule().then(
    () => [],
    (error) => [error.message],
  )

async function run(checks) {
  const reports = join(ROOT, 'target', 'reports')
  const file = join(reports, 'uws.json')
  mkdirSync(reports, { recursive: true })
  rmSync(file, { force: true })
  const code = await show(
    join(ROOT, 'node_modules/.bin/vitest'),
    ['run', 'test/embed/uws.test.ts', '--reporter=default', '--reporter=json', `--outputFile.json=${file}`],
    { cwd: ROOT, env: { ...process.env, NEREID_UWS: '1' } },
  )
  checks.add('requests beside the port', vitestCounts(code, file))
  const recorded = await embedded(['uws'], { all: true })
  checks.add('recorded answers', recorded)
  return (
    `${UWS.name} ${UWS.version}, Node ${process.version}; ${recorded.passed} recorded answers, ` +
    `${recorded.known} known differences`
  )
}

export const uws = { about: 'the API inside uWebSockets.js', missing, steps: undefined, run }
