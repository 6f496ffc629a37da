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
const OUTER = ['node:http', 'fastify']

/** Replays `suites` of the recording at every outer server, all at once: most of a replay is waiting. */
async function replays(suites) {
  const differences = JSON.parse(readFileSync(join(HERE, 'differences.json'), 'utf8'))
  const from = recording('golden')
  const chosen = suites ?? from.suites
  const one = (outer) => replayed(from, chosen, { server: `${process.execPath} ${join(HERE, 'outer.mjs')} ${outer}`, title: outer, differences: differences[outer], together: true })
  const all = await Promise.all(OUTER.map(one))
  const sum = (pick) => all.reduce((total, counts) => total + pick(counts), 0)
  return { passed: sum((c) => c.passed), failed: sum((c) => c.failed), known: sum((c) => c.known), failures: all.flatMap(({ failures }) => failures) }
}

/** Counts for `npm test`. */
export async function embedded() {
  await pythonEnvironment()
  const suiteOf = (failure) => /: ([\w-]+)\//.exec(failure)?.[1]
  const again = (failures) => {
    const suites = failures.map(suiteOf)
    // A replay that had no result names none.
    return replays(suites.includes(undefined) ? undefined : [...new Set(suites)])
  }
  return { ...(await replays()), again }
}
