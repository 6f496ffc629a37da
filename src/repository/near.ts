/** Place in a configuration that a finding is about, if its text alone does not identify it. */
export interface Near {
  field: string
  /** Value of the field as written, without quotes; matches any value if absent. */
  value?: string
  /** Which of several occurrences, from 1. */
  nth?: number
  /** Fields of the same message or of an enclosing one, such as the model of a step. */
  beside?: readonly { field: string; value: string }[]
  /** Alternative place, if nothing in the file matches. */
  or?: Near
}
