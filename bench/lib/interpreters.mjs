/**
 * Python interpreters that already have the packages of a framework. Nothing is installed: a framework is a download of
 * gigabytes.
 */
import { delimiter, join } from 'node:path'
import { ask } from '../../scripts/lib/run.mjs'

/** Prints which of its arguments are no modules; nothing is imported, which takes seconds. */
const LACKING = 'import importlib.util as u, sys; print(" ".join(m for m in sys.argv[1:] if u.find_spec(m) is None))'

/**
 * Paths in the order in which they are asked: the named ones (`--python`, else NEREID_TEST_PYTHON as the tests read
 * it), that of the tests, and that of the system.
 */
export function interpreters(root, named, environment = process.env.NEREID_TEST_PYTHON) {
  const first = (named?.split(',') ?? environment?.split(delimiter) ?? []).filter(Boolean)
  return [...new Set([...first, join(root, '.venv/bin/python'), 'python3'])]
}

/**
 * The first interpreter that has all modules.
 *
 * @returns `{ python }`, or `{ python: null, reason }` with what each of them lacks
 */
export function interpreterWith(modules, candidates) {
  const reasons = []
  for (const python of candidates) {
    const lacking = ask(python, ['-c', LACKING, ...modules])
    if (lacking === '') return { python }
    reasons.push(lacking === null ? `${python} does not run` : `${python} lacks ${lacking.replaceAll(' ', ', ')}`)
  }
  return { python: null, reason: reasons.join('; ') }
}
