/**
 * The recorded answers of Triton, asked of servers of others with the API inside (outer.mjs). What they answer differently than the port does is in differences.json, with the
 * reason of each; one that is not there fails, and one that is there and does not differ. gRPC, which the recordings use in between, goes to a port of its own.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { recording, replayed } from '../../scripts/golden.mjs'
import { pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'

const HERE = join(ROOT, 'test', 'embed')
const OUTER = ['node:http', 'fastify', 'uws']

/** Replays `suites` of the recording at these outer servers, all at once: most of a replay is waiting. */
async function replays(outers, suites) {
  const differences = JSON.parse(readFileSync(join(HERE, 'differences.json'), 'utf8'))
  const from = recording('golden')
  const chosen = suites ?? from.suites
  const one = (outer) => replayed(from, chosen, { server: `${process.execPath} ${join(HERE, 'outer.mjs')} ${outer}`, title: outer, differences: differences[outer], together: true })
  const all = await Promise.all(outers.map(one))
  const sum = (pick) => all.reduce((total, counts) => total + pick(counts), 0)
  return { passed: sum((c) => c.passed), failed: sum((c) => c.failed), known: sum((c) => c.known), failures: all.flatMap(({ failures }) => failures) }
}

/** Counts for `npm test`. `uws` is a stand-in (uws_stand_in.mjs) unless NEREID_UWS has the path of the real module. */
export async function embedded(outers = OUTER) {
  await pythonEnvironment()
  const suiteOf = (failure) => /: ([\w-]+)\//.exec(failure)?.[1]
  const again = (failures) => {
    const suites = failures.map(suiteOf)
    // A replay that had no result names none.
    return replays(outers, suites.includes(undefined) ? undefined : [...new Set(suites)])
  }
  return { ...(await replays(outers)), again }
}
