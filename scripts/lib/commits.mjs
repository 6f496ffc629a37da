/**
 * Compares the subjects of commits with the rule of CONTRIBUTING.md: `area: imperative`, at most `SUBJECT_MAX`
 * characters, no full stop. A list of verbs decides what an imperative is: a new verb is added here.
 */
import { ask } from './run.mjs'

/** The last commit without the check. A clone without history checks its last commit only. */
const SINCE = '478b8725ce10'
const SUBJECT_MAX = 120
const VERBS = new Set(
  (
    'accept add adjust adopt advise allow announce answer apply ask assemble assert assign attack avoid ' +
    'back begin bind blame bound break bring build cache calculate call cancel carry change charge check ' +
    'choose clean clear close collect combine commit compare compile complete compress compute configure ' +
    'connect consider convert copy correct count cover create cut decide declare decline decode delay ' +
    'delete depend derive describe detect divide document drain draw drive drop encode end enforce ensure ' +
    'enter escape estimate evict exclude exempt expect explain export expose extend extract fail feed ' +
    'fence fetch fill find finish fit fix flag flush follow forbid forget form format forward free freeze ' +
    'gather generate get give group guard hand handle hear hide hold ignore import improve include inform ' +
    'inherit initialize inline insert inspect install interrupt introduce join judge keep label lay learn ' +
    'leave lend let lift limit link lint list listen load lock log look lose lower make map mark match ' +
    'measure meet mend mention merge mind mirror move name narrow note notice number observe offer omit ' +
    'open order own pack pair parse pass pause pin place plan point poll pool prefer prepare present ' +
    'preserve prevent print probe prove provide prune publish pull push put quote raise rank reach read ' +
    'rebuild receive recognize record recover reduce refer regenerate register reject relax release ' +
    'reload rely remember remove rename render repair repeat replace replay report request require resend ' +
    'reserve reset resolve respond restart restore restrict retry return reuse reveal revert review ' +
    'rewrite round route run sample save say scale schedule search see select send separate serve set ' +
    'settle shape share shorten show shrink shut sign simplify simulate skip sleep sort speak specify ' +
    'speed split spread stage start state stay step stop store stream strip suggest sum support suspend swap ' +
    'switch sync take teach tell test throw tie time tolerate trace track translate treat trim trust try ' +
    'tune turn type unify unload update upgrade use validate verify wait wake walk warm warn watch weigh ' +
    'widen word work wrap write yield'
  ).split(' '),
)

/** The fault of a subject, or null. */
export function subjectFault(subject) {
  if (/^(Merge|Revert) /.test(subject)) return null
  const [, area, words] = /^([^:]+(?:::[^:]+)*): (.*)$/.exec(subject) ?? []
  if (area === undefined) return 'it names no area: `area: imperative`'
  const verb = words.split(/[ ,]/)[0]
  if (!VERBS.has(verb)) return `"${verb}" is no imperative (or one that scripts/lib/commits.mjs does not know)`
  if (subject.length > SUBJECT_MAX) return `it has ${subject.length} characters, and at most ${SUBJECT_MAX} are read`
  return subject.endsWith('.') ? 'it ends with a full stop' : null
}

/** Subjects of the commits since the check that break the rule, each with its fault. */
export function wrongSubjects(root) {
  const git = (...args) => ask('git', args, { cwd: root })
  const isThere = git('merge-base', '--is-ancestor', SINCE, 'HEAD') !== null
  const log = git('log', '--format=%h %s', ...(isThere ? [`${SINCE}..HEAD`] : ['-1']))
  // An archive of the sources has no history.
  if (log === null || log === '') return []
  return log.split('\n').flatMap((line) => {
    const [hash, subject] = [line.slice(0, line.indexOf(' ')), line.slice(line.indexOf(' ') + 1)]
    const fault = subjectFault(subject)
    return fault === null ? [] : [`${hash} "${subject}": ${fault}`]
  })
}
