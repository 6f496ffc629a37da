/** What of a configuration a finding is about, where its text alone does not lead there. */
export interface Near {
  field: string
  /** The value of the field, as it stands there without quotes; any when it is left out. */
  value?: string
  /** Which of several, from 1. */
  nth?: number
  /** Fields that stand in the same message or around it, such as the model of a step. */
  beside?: readonly { field: string; value: string }[]
  /** Where else, when nothing of the file is this. */
  or?: Near
}
