"""What people read about policies and searches, and the command lines that go with it; pure."""
