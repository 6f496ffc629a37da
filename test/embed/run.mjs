/**
 * The recorded answers of Triton, asked of servers of others with the API inside (outer.mjs). What they answer
 * differently than the port does is in differences.json, with the reason of each; one that is not there fails, and one
 * that is there and does not differ. gRPC, which the recordings use in between, goes to a port of its own.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Lanes, recording, replayed } from '../../scripts/golden.mjs'
import { pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { SAMPLE, chosen, textOf } from './sample.mjs'

const HERE = join(ROOT, 'test', 'embed')
const OUTER = ['node:http', 'fastify']

/** Replays `suites` of the recording at these outer servers, or of `cases` alone, the file of a sample. */
async function replays(outers, { suites, cases = null }) {
  const differences = JSON.parse(readFileSync(join(HERE, 'differences.json'), 'utf8'))
  const from = recording('golden')
  const lanes = new Lanes('embed')
  const one = (outer) =>
    replayed(from, suites ?? from.suites, {
      lanes,
      cases,
      server: `${process.execPath} ${join(HERE, 'outer.mjs')} ${outer}`,
      title: outer,
      differences: differences[outer],
    })
  const all = await Promise.all(outers.map(one))
  lanes.end()
  const sum = (pick) => all.reduce((total, counts) => total + pick(counts), 0)
  return {
    passed: sum((c) => c.passed),
    failed: sum((c) => c.failed),
    known: sum((c) => c.known),
    failures: all.flatMap(({ failures }) => failures),
  }
}

/** Whether the committed sample is the one that is chosen from the recording as it is now; what to do otherwise. */
async function staleSample() {
  return readFileSync(SAMPLE, 'utf8') === textOf(await chosen())
    ? []
    : ['test/embed/sample.json is not what test/embed/sample.mjs chooses: node test/embed/sample.mjs']
}

/** Counts for `npm test`. @param all every answer of the recording; otherwise those of sample.json */
export async function embedded(outers = OUTER, { all = false } = {}) {
  await pythonEnvironment()
  const cases = all ? null : SAMPLE
  const suiteOf = (failure) => /: ([\w-]+)\//.exec(failure)?.[1]
  const again = (failures) => {
    const suites = failures.map(suiteOf)
    // A replay that had no result names none.
    return replays(outers, { suites: suites.includes(undefined) ? undefined : [...new Set(suites)], cases })
  }
  if (all) return { ...(await replays(outers, {})), again }
  const stale = await staleSample()
  const { passed, failed, known, failures } = await replays(outers, { cases })
  return {
    passed: passed + 1 - stale.length,
    failed: failed + stale.length,
    known,
    failures: [...stale, ...failures],
    again,
  }
}
