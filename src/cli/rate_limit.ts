/**
 * `--rate-limit` and `--rate-limit-resource`: which resources limit executions, and their counts (scheduling.md §8).
 * Pure.
 */

import type { Available } from '../native/contract.js'
import type { Options } from './flags.js'
import { badOption } from './parse.js'

const INT32_MAX = 2147483647

/**
 * Reads the options; null if executions are not limited. The resources are checked in either case.
 *
 * @throws {OptionError} for a malformed resource
 */
export function readRateLimit(options: Options): Available[] | null {
  const resources = options.rateLimitResource.map(readResource)
  return options.rateLimit === 'off' ? null : resources
}

/** Parses `<name>:<count>` or `<name>:<count>:<device>`. The empty name is allowed, as in configurations. */
function readResource(text: string): Available {
  const [name, count, device, ...more] = text.split(':')
  if (name === undefined || count === undefined || more.length > 0) {
    const form = "option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'."
    throw badOption('rate-limit-resource', `--rate-limit-resource ${form} Got ${text}`)
  }
  return { name, count: readNumber(count), device: device === undefined ? null : readNumber(device) }
}

function readNumber(text: string): number {
  if (!/^[+-]?\d+$/.test(text)) throw badOption('rate-limit-resource', `Invalid option value. Got ${text}`)
  const number = Number(text)
  if (number < 0 || number > INT32_MAX) {
    throw badOption(
      'rate-limit-resource',
      `Provided option value is out of bound. Got ${text}; it is from 0 to ${INT32_MAX}`,
    )
  }
  return number
}
