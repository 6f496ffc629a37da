/**
 * Reads the functions and numbers of Triton's C API from our headers, shm/include. Understands only what they contain:
 * one statement for each prototype, its visibility first.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const HEADERS = ['tritonserver', 'tritonbackend', 'tritoncache', 'tritonrepoagent']
export const INCLUDE = 'shm/include'

const plain = (text) => text.replaceAll(/\/\/[^\n]*/g, '').replaceAll(/^#[^\n]*(?:\\\n[^\n]*)*/gm, '')
const joined = (text) => text.trim().replaceAll(/\s+/g, ' ')

/** Splits `const char** name` into type and name. */
function argument(text) {
  const [, type = '', name = ''] = /^(.*?)\s*(\w+)$/.exec(joined(text)) ?? []
  return { type, name }
}

/** Prototypes in order; `isEntryPoint` is true for what a plugin exports and false for what the server exports. */
export function prototypesOf(text) {
  const found = plain(text).matchAll(/\bTRITON[A-Z]+_(DECLSPEC|ISPEC)\s+([^;()]+?)\b(TRITON\w+)\s*\(([^;()]*)\)\s*;/g)
  return [...found].map(([, spec, returns, name, list]) => ({
    name,
    returns: joined(returns),
    arguments: list.split(',').map(argument),
    isEntryPoint: spec === 'ISPEC',
  }))
}

/** Members of all enums, with their numbers. */
export function numbersOf(text) {
  const enums = [...plain(text).matchAll(/\benum \w+ \{([^}]*)\}/g)]
  const members = enums.flatMap(([, body]) => [...body.matchAll(/(\w+)\s*=\s*(\d+)/g)])
  return new Map(members.map(([, name, number]) => [name, Number(number)]))
}

export const headerText = (root, header) => readFileSync(join(root, INCLUDE, `triton/core/${header}.h`), 'utf8')
