/** Answers that are asked for once. */
export class Kept {
  readonly #answers = new Map<string, Promise<unknown>>();

  /** Returns the answer that has this key, or asks for it. A key has one type of answer. */
  get<T>(key: string, ask: () => Promise<T>): Promise<T> {
    let answer = this.#answers.get(key) as Promise<T> | undefined;
    if (answer === undefined) {
      answer = ask();
      this.#answers.set(key, answer);
    }
    return answer;
  }
}
