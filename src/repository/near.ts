/** What of a configuration a finding is about, where its text alone does not lead there. */
export interface Near {
  field: string
  /** The value of the field, as it stands there without quotes; any when it is left out. */
  value?: string
  /** Which of several, from 1. */
  nth?: number
}
