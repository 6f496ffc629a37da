/**
 * Entry point `nereid/internal`: what the commands in `src/tools` use of the server's package, and all that they use.
 * Not a public interface: it changes with any release.
 */

export { CommandError, commandNamed, readArguments, usageOf } from './cli/arguments.js'
export { counted, printable } from './cli/output.js'
export { ask, headerOf, headersWithKey, membersOf, remoteOf, type Remote } from './cli/remote.js'
export { nativeProgram } from './native/locate.js'
