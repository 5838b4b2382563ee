/** Result of one check of the doctor. */
export interface Finding {
  readonly check: string;
  readonly found: string;
  /** What to change; undefined = nothing. */
  readonly change?: string;
}
