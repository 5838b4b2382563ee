/** Result of one check of the doctor. */
export interface Finding {
  readonly check: string;
  readonly found: string;
  /** The change to make; undefined = none. */
  readonly change?: string;
}
