/**
 * Counts what makes the code hard to read or to change, and compares the counts with their limits in
 * scripts/house.json.
 *
 * A limit only falls: `--write` lowers each to the current count and never raises one. A feature that needs more lines
 * raises that limit by hand, where the review sees it.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { productModules, usesOf } from './rust_files.mjs'
import { NAME_MAX, longNames, wrongErrors, wrongTexts } from './texts.mjs'
import { COLUMNS_MAX, MODULES_MAX, fragments, longLines, recordedLines, typeNames } from './words.mjs'

export const LINES_MAX = 600
export const FIELDS_MAX = 15
/** The repository has one job per file. */
const REPOSITORY_LINES_MAX = 450
/** Limits of lines are round, so that a small change needs no new limit. */
const LINES_STEP = 100
const LIMITS = 'scripts/house.json'
const PAGE = 'docs/internals/counts.md'
const [BEGIN, END] = ['<!-- house: begin -->', '<!-- house: end -->']

/** Files below a directory, as paths from `root`; none if the directory is missing. */
function filesBelow(root, directory, suffix) {
  let entries
  try {
    entries = readdirSync(join(root, directory), { withFileTypes: true })
  } catch {
    return []
  }
  return entries
    .filter(({ name }) => !['node_modules', '__pycache__', 'target', 'dist'].includes(name))
    .flatMap((entry) => {
      const path = `${directory}/${entry.name}`
      if (entry.isDirectory()) return filesBelow(root, path, suffix)
      return path.endsWith(suffix) ? [path] : []
    })
    .toSorted()
}

/** Folders with TypeScript and JavaScript whose files must not import each other in a circle. */
const IMPORTING = ['src', 'client', 'bench']

/** Folders with hand-written code, tests and tools included. */
const WRITTEN = ['crates', 'src', 'client', 'test', 'bench', 'fuzz', 'scripts', 'examples', 'docs/site', 'packaging']

/** Counts of texts, comments, lines and names that a newcomer cannot read. */
function countWords(root, { Rust: rust, TypeScript: typescript, Python: python }) {
  const wordless = []
  const names = []
  const long = new Map([
    ['Rust', []],
    ['TypeScript', []],
    ['JavaScript', []],
  ])
  const recorded = []
  const languages = { rs: 'Rust', ts: 'TypeScript', tsx: 'TypeScript', mjs: 'JavaScript', js: 'JavaScript' }
  for (const [suffix, language] of Object.entries(languages)) {
    for (const file of WRITTEN.flatMap((directory) => filesBelow(root, directory, `.${suffix}`))) {
      const text = readFileSync(join(root, file), 'utf8')
      if (isGenerated(file, text)) continue
      wordless.push(...fragments(text).map((one) => `${file}:${one}`))
      names.push(...longNames(file, text).map((one) => `${file}: ${one}`))
      const lines = longLines(text)
      // Rust breaks a text with a backslash, and the server's own texts are made of parts.
      const whole = lines.length === 0 || suffix === 'rs' || file.startsWith('src/') ? new Set() : recordedLines(text)
      for (const line of lines) (whole.has(line) ? recorded : long.get(language)).push(`${file}:${line}`)
    }
  }
  const modules = new Map()
  for (const [file, text] of rust) {
    for (const name of typeNames(text)) modules.set(name, [...(modules.get(name) ?? []), file])
  }
  for (const file of filesBelow(root, 'test', '.py'))
    names.push(...longNames(file, readFileSync(join(root, file), 'utf8')).map((one) => `${file}: ${one}`))
  const client = filesBelow(root, 'client/src', '.ts').map((file) => [file, readFileSync(join(root, file), 'utf8')])
  const shown = [...rust, ...typescript, ...python, ...client].filter(([file, text]) => !isGenerated(file, text))
  const found = (wrong) => shown.flatMap(([file, text]) => wrong(file, text).map((one) => `${file}: ${one}`))
  const repeated = [...modules].filter(([, files]) => files.length > MODULES_MAX)
  return [
    ['texts for users with unclear words', found(wrongTexts)],
    ['sections of errors without the errors', found((file, text) => (file.endsWith('.rs') ? wrongErrors(text) : []))],
    [`names of tests of more than ${NAME_MAX} characters`, names],
    ['comments that begin as fragments', wordless],
    ...[...long].map(([language, list]) => [`${language} beyond ${COLUMNS_MAX} columns`, list]),
    [`recorded texts beyond ${COLUMNS_MAX} columns`, recorded],
    [`type names in more than ${MODULES_MAX} modules`, repeated.map(([name, files]) => `${name}: ${files.join(', ')}`)],
  ]
}

const linesOf = (text) => text.split('\n').length - 1

const isGenerated = (file, text) => file.includes('/generated/') || /generated from/i.test(text.slice(0, 300))

/** Groups of nodes that reach each other (Tarjan); `uses` maps a node to its targets. */
export function circles(uses) {
  const order = new Map()
  const lowest = new Map()
  const open = []
  const found = []
  const visit = (node) => {
    order.set(node, order.size)
    lowest.set(node, order.get(node))
    open.push(node)
    for (const next of uses.get(node)) {
      if (!uses.has(next)) continue
      if (!order.has(next)) visit(next)
      if (open.includes(next)) lowest.set(node, Math.min(lowest.get(node), lowest.get(next)))
    }
    if (lowest.get(node) !== order.get(node)) return
    const group = open.splice(open.indexOf(node))
    if (group.length > 1) found.push(group.toSorted())
  }
  for (const node of uses.keys()) if (!order.has(node)) visit(node)
  return found
}

/** Structs with more than `FIELDS_MAX` fields. rustfmt indents each field by four blanks. */
function largeStructs(file, text) {
  const structs = text.matchAll(/^(?:pub(?:\([^)]*\))? )?struct (\w+)[^;{(]*\{\n(.*?)^\}/gms)
  return [...structs].flatMap(([, name, body]) => {
    const fields = body.match(/^ {4}(?:pub(?:\([^)]*\))? )?\w+: /gm)?.length ?? 0
    return fields > FIELDS_MAX ? [{ id: `${file} ${name}`, fields }] : []
  })
}

/** Types of values that change, and constructors of types that may have one. */
const STATE =
  /\b(Atomic\w+|Mutex|RwLock|Condvar|Once(Lock|Cell)?|\w*Cell|Semaphore|\w*Pool)\b|\b(?!LazyLock|Bytes)[A-Z]\w+::new\(/

/**
 * Statics with state, which two servers of a process share. A table, or a `LazyLock` of a type without state, is a
 * constant; values of one thread (`thread_local!`) are not counted.
 */
export function statics(file, text) {
  const code = text.replace(/(^|\s)\/\/.*$/gm, '').replace(/^( *)(?:\w+::)*thread_local! \{[\s\S]*?^\1\}/gm, '')
  return [...code.matchAll(/^ *(?:pub(?:\([^)]*\))? )?static (\w+): /gm)].flatMap(({ 0: begin, 1: name, index }) => {
    const item = code.slice(index + begin.length)
    const [, type, value] = /^([\s\S]*?) =\s([\s\S]*?;)$/m.exec(item) ?? [item]
    return STATE.test(type.startsWith('LazyLock<') ? type : `${type} ${value}`) ? [`${file} ${name}`] : []
  })
}

/** Number of methods that a trait declares. */
function methodsOf(text, trait) {
  const body = new RegExp(`^pub trait ${trait}\\b.*?^\\}`, 'ms').exec(text)?.[0] ?? ''
  return body.match(/^ {4}fn \w+/gm)?.length ?? 0
}

/** Names of functions that note something of a request. */
const NOTES =
  'found follow named granted received refused completed responded replying sending sent events ending refusing ' +
  'succeeded failed take_trace is_sampled event_sending event_sent'
const NOTE = new RegExp(`\\brecord(\\.|::)(${NOTES.replaceAll(' ', '|')})\\(`, 'g')

/** Groups of files whose lines are counted together. The protocol of the C ABI, `frames`, is not among them. */
const GROUPS = {
  'lines of nereid doctor': /^src\/tools\/doctor\//,
  'lines of the C ABI': /^crates\/(backend-host|backend-c|cache-library)\//,
}
const PROMISE = /SAFETY: (the caller's promise|as above)\.?$/

const STATIC = /\b(?:from|import) '(\.[^']+)'/g
const DYNAMIC = /\bimport\('(\.[^']+)'\)/g

/** Files that a TypeScript or JavaScript file imports, types included; `pattern` is one of the two above. */
function importsOf(file, text, pattern) {
  return [...text.matchAll(pattern)].map(([, path]) => normalize(join(dirname(file), path)).replace(/\.js$/, '.ts'))
}

/** Files of a folder that import each other. A dynamic import closes no circle: it runs after both files were read. */
function importCircles(root, folder) {
  const files = ['.ts', '.tsx', '.mjs'].flatMap((suffix) => filesBelow(root, folder, suffix))
  // A file `.tsx` is imported as `.js`, too.
  const named = new Map(files.map((file) => [file.replace(/\.tsx$/, '.ts'), file]))
  return circles(
    new Map([...named].map(([name, file]) => [name, importsOf(file, readFileSync(join(root, file), 'utf8'), STATIC)])),
  )
}

/** Folder of `src` that contains a file; for a file outside the folders its own name if it has rules, else `src`. */
const folderOf = (file, folders) => {
  const [, name, inside] = file.split('/')
  return inside !== undefined || name in folders ? name : 'src'
}

/** Imports between folders of `src` that the settings do not permit. */
function wrongImports(sources, { folders, loads }) {
  const wrong = circles(new Map(Object.entries(folders))).map(
    (circle) => `${LIMITS}: folders import each other: ${circle.join(', ')}`,
  )
  const compare = (file, text, pattern, allowed, verb) => {
    const from = folderOf(file, folders)
    for (const to of importsOf(file, text, pattern)) {
      const outside = to.startsWith('client/src/') ? 'client' : 'what is outside of src'
      const folder = to.startsWith('src/') ? folderOf(to, folders) : outside
      if (folder === from || allowed[from]?.includes(folder)) continue
      wrong.push(
        `${file} ${verb}s ${to}: files of ${from} may ${verb} from ` +
          `${allowed[from]?.join(', ') || 'no other folder'} (${LIMITS})`,
      )
    }
  }
  for (const [file, text] of sources) {
    compare(file, text, STATIC, folders, 'import')
    compare(file, text, DYNAMIC, loads, 'load')
  }
  return wrong
}

/** All counts of the code below `root`: a value by name, with the counted items if they form a list. */
export function count(root, records = {}, rooms = {}) {
  const roomOf = (file) => Object.keys(rooms).find((room) => rooms[room].some((path) => file.startsWith(path)))
  const read = (file) => readFileSync(join(root, file), 'utf8')
  const crates = readdirSync(join(root, 'crates')).toSorted()
  const texts = { Rust: new Map(), TypeScript: new Map(), Python: new Map() }
  const counts = new Map()
  const set = (name, list) => counts.set(name, { value: list.length, list })
  const circular = new Map()
  for (const crate of crates) {
    const base = `crates/${crate}/src`
    const modules = productModules(
      new Map(filesBelow(root, base, '.rs').map((file) => [file.slice(base.length + 1), read(file)])),
    )
    for (const { file, text } of modules.values()) texts.Rust.set(`${base}/${file}`, text)
    circular.set(`crates/${crate}`, circles(usesOf(modules)))
  }
  for (const file of ['.ts', '.tsx'].flatMap((suffix) => filesBelow(root, 'src', suffix)))
    texts.TypeScript.set(file, read(file))
  for (const file of filesBelow(root, 'crates/backend-python/runtime', '.py')) texts.Python.set(file, read(file))
  for (const folder of IMPORTING) circular.set(folder, importCircles(root, folder))

  const long = []
  const longOfRepository = []
  const parts = new Map()
  const groups = new Map(Object.keys(GROUPS).map((name) => [name, { value: 0, files: 0 }]))
  for (const [language, files] of Object.entries(texts)) {
    const sums = new Map([['', { lines: 0, characters: 0 }]])
    for (const [file, text] of files) {
      if (isGenerated(file, text)) continue
      const lines = linesOf(text)
      for (const [name, group] of groups) {
        if (!GROUPS[name].test(file)) continue
        group.value += lines
        group.files += 1
      }
      const room = roomOf(file) ?? ''
      const sum = sums.get(room) ?? { lines: 0, characters: 0 }
      sums.set(room, { lines: sum.lines + lines, characters: sum.characters + text.length })
      const part = file
        .split('/')
        .slice(0, language === 'TypeScript' ? 2 : 3)
        .join('/')
        .replace(/\/src$/, '')
      const name = part.endsWith('.ts') ? 'src' : part
      parts.set(name, (parts.get(name) ?? 0) + lines)
      if (lines > LINES_MAX) long.push(`${file}: ${lines}`)
      if (file.startsWith('src/repository/') && lines > REPOSITORY_LINES_MAX) longOfRepository.push(`${file}: ${lines}`)
    }
    for (const [room, { lines, characters }] of sums) {
      const name = room === '' ? `lines of ${language}` : `lines of ${language}, ${room}`
      counts.set(name, { value: lines, list: [`${(characters / lines).toFixed(1)} characters a line`] })
    }
  }
  for (const [name, { value, files }] of groups) counts.set(name, { value, list: [`${files} files`] })
  set(`files of more than ${LINES_MAX} lines`, long)
  set(`files of src/repository of more than ${REPOSITORY_LINES_MAX} lines`, longOfRepository)
  const structs = [...texts.Rust].flatMap(([file, text]) => (isGenerated(file, text) ? [] : largeStructs(file, text)))
  const counted = structs.filter(({ id }) => records[id] === undefined)
  set(
    `structs of more than ${FIELDS_MAX} fields`,
    counted.map(({ id, fields }) => `${id}: ${fields}`),
  )
  for (const [place, groups] of circular) {
    // Crates have a row only with a circle, since there are many of them.
    if (groups.length === 0 && !IMPORTING.includes(place)) continue
    counts.set(`files in circles, ${place}`, {
      value: groups.flat().length,
      list: groups.map((group) => group.map((one) => one || 'lib').join(' ')),
    })
  }
  const states = [...texts.Rust].flatMap(([file, text]) => statics(file, text))
  set('statics with state in Rust', states)
  const model = [...texts.Rust]
    .filter(([file]) => file.startsWith('crates/backend/'))
    .map(([, text]) => methodsOf(text, 'Model'))
  counts.set('methods of the trait Model', { value: Math.max(0, ...model) })
  const engine = [...texts.Rust].filter(([file]) => file.startsWith('crates/engine/'))
  const ensembles = engine.flatMap(([file, text]) => (text.match(/\.ensemble\b/g) ?? []).map(() => file))
  set('uses of `.ensemble` in crates/engine', ensembles)
  const frontend = [...texts.Rust].filter(([file]) => file.startsWith('crates/frontend/'))
  const notes = frontend
    .filter(([file]) => !/src\/(exchange|record)\//.test(file))
    .flatMap(([file, text]) => (text.match(NOTE) ?? []).map(() => file))
  set('notes of a request outside of frontend::exchange and record', notes)
  const lookups = frontend.flatMap(([file, text]) => (text.match(/\bengine\.model\(/g) ?? []).map(() => file))
  set('lookups of a version by name in crates/frontend', lookups)
  const proofs = filesBelow(root, 'crates/backend-host/src', '.rs').flatMap((file) =>
    (read(file).match(/\/\/ SAFETY:.*/g) ?? []).map((proof) => `${file}: ${proof}`),
  )
  set('proofs of unsafe code in crates/backend-host', proofs)
  const promises = proofs.filter((proof) => PROMISE.test(proof))
  set('proofs that are a promise of the caller alone', promises)
  for (const [name, list] of countWords(root, texts)) set(name, list)
  return { counts, parts, structs: structs.map(({ id }) => id), sources: texts.TypeScript }
}

const table = (head, rows) =>
  [
    `| ${head.join(' | ')} |`,
    `|${head.map(() => '---|').join('')}`,
    ...rows.map((row) => `| ${row.join(' | ')} |`),
  ].join('\n')

/** The section of the page of counts: the limits, and the exempt structs. */
export function section({ limits, records }) {
  const exempt = Object.entries(records).map(([id, reason]) => [`\`${id}\``, reason])
  const rows = Object.entries(limits).map(([name, limit]) => [name, limit])
  const structs = table([`struct with more than ${FIELDS_MAX} fields`, 'why it may'], exempt)
  return `${table(['counted', 'limit'], rows)}\n\n${structs}\n`
}

/** Compares the code below `root` with its limits. `wrong` lists errors, `table` the counts with their limits. */
export function house(root, { write = false } = {}) {
  const settings = JSON.parse(readFileSync(join(root, LIMITS), 'utf8'))
  const { counts, parts, structs, sources } = count(root, settings.records, settings.rooms)
  const wrong = wrongImports(sources, settings)
  for (const [name, { value, list = [] }] of counts) {
    const limit = settings.limits[name] ?? 0
    if (value > limit)
      wrong.push(`${name}: ${value}, and the limit is ${limit} (${LIMITS})`, ...list.map((one) => `  ${one}`))
  }
  const obsolete = Object.keys(settings.records).filter((id) => !structs.includes(id))
  const path = join(root, PAGE)
  const page = readFileSync(path, 'utf8')
  const [before, rest = ''] = page.split(BEGIN)
  const [current, after = ''] = rest.split(END)
  if (write) {
    for (const id of obsolete) delete settings.records[id]
    for (const name of Object.keys(settings.limits)) {
      const value = counts.get(name)?.value ?? 0
      const lowest = name.startsWith('lines of') ? Math.ceil(value / LINES_STEP) * LINES_STEP : value
      settings.limits[name] = Math.min(settings.limits[name], lowest)
      if (settings.limits[name] === 0 && !counts.has(name)) delete settings.limits[name]
    }
    writeFileSync(join(root, LIMITS), `${JSON.stringify(settings, null, 2)}\n`)
    writeFileSync(path, `${before}${BEGIN}\n${section(settings)}${END}${after}`)
  } else {
    for (const id of obsolete)
      wrong.push(`${LIMITS}: ${id} is exempt, and there is no such struct of more than ${FIELDS_MAX} fields`)
    if (current.trim() !== section(settings).trim())
      wrong.push(`${PAGE} has other limits than ${LIMITS}: npm run lint -- --house --write`)
  }
  const rows = [...counts].map(([name, { value, list = [] }]) => [
    name,
    value,
    settings.limits[name] ?? 0,
    name.startsWith('lines of') ? list[0] : '',
  ])
  const lines = [...parts].map(([part, value]) => [part, value])
  return { wrong, table: `${table(['counted', 'now', 'limit', ''], rows)}\n\n${table(['part', 'lines'], lines)}\n` }
}
