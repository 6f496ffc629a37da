/**
 * The commands of `nereid` beside serving, once: the dispatcher, `--help`, the man page and shell completion are made from this table.
 * Their code lives in `src/commands/<name>/`. A command is the first argument, as it stands here; anything else is a flag of the server, as for `tritonserver`.
 */

export interface Command {
  name: string
  /** Behind the name in usage lines, such as `MODEL.onnx [options]`. */
  usage: string
  /** One sentence, ASCII, for help and docs. */
  meaning: string
  /** Imported only when the command is asked for: a start of the server pays for none of them. */
  load(): Promise<CommandModule>
}

export interface CommandModule {
  /** Runs with the arguments behind the name; resolves with the exit code. Prints what it has to say itself. */
  run(program: string, args: readonly string[]): Promise<number>
}

export const COMMANDS: readonly Command[] = [
  {
    name: 'check',
    usage: '[REPOSITORY | MODEL | config.pbtxt ...] [--load] [--format=json] [options]',
    meaning: 'Print every mistake of model repositories and configurations with its place. Starts no server; --load loads the models once.',
    load: () => import('../commands/check/index.js'),
  },
]
