/**
 * Options of Triton's OpenAI front end (`main.py`) that this server has under another name or does not need. Its other
 * options have the same names and meanings here.
 */

export interface FrontEndOption {
  /** Names of the equal flags, without dashes; empty if the option is not needed. */
  flags: readonly string[]
  /** Why the option is not needed. */
  reason?: string
  /** True if the option has no value. */
  isSwitch?: true
}

export const FRONT_END_OPTIONS: ReadonlyMap<string, FrontEndOption> = new Map<string, FrontEndOption>([
  ['host', { flags: ['http-address', 'grpc-address'] }],
  ['kserve-http-port', { flags: ['http-port'] }],
  ['kserve-grpc-port', { flags: ['grpc-port'] }],
  ['tritonserver-log-verbose-level', { flags: ['log-verbose'] }],
  ['enable-kserve-frontends', { flags: [], reason: '--http-port and --grpc-port are open without it', isSwitch: true }],
  ['backend', { flags: [], reason: 'requests have the form of the tensors of the model' }],
  ['uvicorn-log-level', { flags: [], reason: 'its levels are of a library that is not used here' }],
])

/** Port of the front end without `--openai-port`. */
export const FRONT_END_PORT = '9000'

/** Advice about such an option: the flags to write, or why to leave it out. */
export function frontEndAdvice({ flags, reason = '' }: FrontEndOption): string {
  if (flags.length === 0) return `leave it out: ${reason}`
  return `write ${flags.map((flag) => `--${flag}`).join(' and ')}`
}
