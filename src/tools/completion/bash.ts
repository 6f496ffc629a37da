/** Completion for bash 3.2 and newer, without the package bash-completion. */

import type { Completed, CompletedCommand, CompletedOption } from './completed.js'

export function bash({ flags, commands }: Completed): string {
  const optional = [...flags, ...commands.flatMap((c) => c.options)].filter((o) => o.isOptional)
  return `# Completion of nereid for bash: in ~/.bashrc put
#   eval "$(nereid completion bash)"
# or write this to /etc/bash_completion.d/nereid.

_nereid() {
  local word=\${COMP_WORDS[COMP_CWORD]} option= first=\${COMP_WORDS[1]-} names= values= files=
  # Readline takes = for a word of its own.
  if [[ $word == = ]]; then
    option=\${COMP_WORDS[COMP_CWORD-1]} word=
  elif [[ $COMP_CWORD -ge 2 && \${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    option=\${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $COMP_CWORD -ge 2 && \${COMP_WORDS[COMP_CWORD-1]} == --* ]]; then
    option=\${COMP_WORDS[COMP_CWORD-1]}
    # A word after an option without a value belongs to no option.
    case $option in ${alternatives(optional)}) option= ;; esac
  fi
  COMPREPLY=()
  if [[ -n $option ]]; then
    case $first:$option in
${commands.flatMap((command) => command.options.map((o) => valueCase(`${command.name}:--${o.name}`, o))).join('\n')}
${flags.map((o) => valueCase(`*:--${o.name}`, o)).join('\n')}
    esac
  else
    [[ $COMP_CWORD -eq 1 ]] && values='${commands.map((c) => c.name).join(' ')} serve'
    names='${optionNames(flags)}'
    if [[ $COMP_CWORD -ge 2 ]]; then
      case $first in
${commands.map((c) => commandCase(c, flags)).join('\n')}
      esac
    fi
    [[ $word == -* ]] && values=$names files=
  fi
  [[ -n $values ]] && COMPREPLY=($(compgen -W "$values" -- "$word"))
  local IFS=$'\\n'
  case $files in
    '') ;;
    directory) COMPREPLY+=($(compgen -d -S / -- "$word")) ;;
    path) COMPREPLY+=($(compgen -f -- "$word")) ;;
    *) COMPREPLY+=($(compgen -f -X "!*@($files)" -- "$word") $(compgen -d -S / -- "$word")) ;;
  esac
  if [[ \${#COMPREPLY[@]} -eq 1 && \${COMPREPLY[0]} == *[=/] ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
shopt -s extglob
complete -F _nereid nereid tritonserver
`
}

function alternatives(options: readonly CompletedOption[]): string {
  return [...new Set(options.map((o) => `--${o.name}`))].join('|')
}

function valueCase(pattern: string, { values }: CompletedOption): string {
  const what =
    values.kind === 'words'
      ? `values='${values.words.join(' ')}'`
      : values.kind === 'path' || values.kind === 'directory'
        ? `files=${values.kind}`
        : ':'
  return `      ${pattern}) ${what} ;;`
}

function optionNames(options: readonly CompletedOption[]): string {
  return options.map((o) => (o.isOptional ? `--${o.name}` : `--${o.name}=`)).join(' ')
}

function commandCase(
  { name, options, takesFlags, words, files }: CompletedCommand,
  flags: readonly CompletedOption[],
): string {
  const all = optionNames(takesFlags ? [...options, ...flags] : options)
  return (
    `        ${name}) names='${all}' values='${words.join(' ')}' ` +
    `files='${files.map((ending) => `*${ending}`).join('|')}' ;;`
  )
}
