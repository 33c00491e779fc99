"""What a search or an evaluation found, what it cost, how much faster its policy is; pure."""
