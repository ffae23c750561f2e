"""What is told to people, when, and in which words: pure rules of the alerts."""
