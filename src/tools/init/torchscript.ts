/** Asks the interpreter that will serve a TorchScript file for the names in it. */

import { askPython, ownCode } from '../../internal.js'

/** A tensor of the file: its name, and whether it is a list of strings. */
export type NamedTensor = readonly [name: string, isStrings: boolean]

/** Inputs and outputs, null where the file does not determine them. */
export interface TorchScript {
  inputs: readonly NamedTensor[] | null
  outputs: readonly NamedTensor[] | null
}

/** @returns null for another kind of file, and without an interpreter that has torch */
export async function torchScriptIn(file: string): Promise<TorchScript | null> {
  const found = await askPython([ownCode('pytorch', 'nereid_pytorch_look.py'), file])
  return found as TorchScript | null
}
