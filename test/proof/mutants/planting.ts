/** A mutant before it is known where its file lies: a range of the text, and what takes its place. */
export interface Planting {
  readonly start: number;
  readonly end: number;
  readonly to: string;
}
