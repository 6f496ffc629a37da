/**
 * The logging extension: reads and updates the live log settings, for both protocols.
 *
 * Keys take effect in the order of the response; an invalid key leaves the earlier ones changed (P 1.10). The log file
 * cannot be set from outside, because that allowed appending to any file (CVE-2024-0087).
 */

import type { LogSettings } from '../log/index.js'
import { REFUSED, ServerError } from '../native/index.js'
import { fitsUint32, isBoolean, isString, low32, members } from './json.js'

export type Protocol = 'http' | 'grpc'

/** All settings, in the form of both protocols. */
export function logSettingsAnswer(settings: LogSettings): Record<string, string | boolean | number> {
  return {
    log_file: settings.file,
    log_info: settings.info,
    log_warning: settings.warning,
    log_error: settings.error,
    log_verbose_level: settings.verbose,
    log_format: settings.format,
  }
}

/**
 * Applies an update to `settings` in place.
 *
 * @throws {ServerError} with the text of the protocol; P 1.10 lists the unusual codes.
 */
export function updateLogSettings(settings: LogSettings, update: unknown, protocol: Protocol): void {
  const values = members(update)
  // A gRPC setting without a value arrives as null and has the wrong type; a JSON null leaves the setting unchanged.
  const given = (key: string): boolean => Object.hasOwn(values, key) && (protocol === 'grpc' || values[key] !== null)

  if (given('log_file')) {
    throw new ServerError('UNSUPPORTED', 'log file location can not be updated through network protocol')
  }
  for (const [key, field] of [
    ['log_info', 'info'],
    ['log_warning', 'warning'],
    ['log_error', 'error'],
  ] as const) {
    if (!given(key)) continue
    const value = values[key]
    if (protocol === 'grpc' && typeof value !== 'boolean') {
      throw new ServerError('INVALID_ARG', `expect boolean for '${key}'`)
    }
    isBoolean(value)
    settings[field] = value
  }
  if (given('log_verbose_level')) {
    const value = values['log_verbose_level']
    if (protocol === 'grpc' && !fitsUint32(value)) {
      throw new ServerError('INVALID_ARG', "expect int32 for 'log_verbose_level'")
    }
    settings.verbose = low32(value)
  }
  if (given('log_format')) {
    const value = values['log_format']
    if (protocol === 'grpc' && typeof value !== 'string') {
      throw new ServerError('INVALID_ARG', "expect string for 'log_format'")
    }
    isString(value)
    if (value !== 'default' && value !== 'ISO8601' && value !== 'json') {
      throw protocol === 'grpc'
        ? new ServerError('INVALID_ARG', `invalid argument for log_format, got: ${value}`)
        : new ServerError('UNAVAILABLE', `invalid argument for --log_format, got: ${value}`, REFUSED)
    }
    settings.format = value
  }
}
